"""Maka: an event-sourced actor system that runs AI agents and keeps a complete record of what they did.

The public API: a host over one state root, the session manager that it offers, and the values that go in and come out.
`maka.contracts.session_events` and `maka.contracts.errors` hold the rest of the vocabulary.

Law: importing this loads nothing but the standard library; a name's module is imported when the name is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maka.app import Host, open_host, open_reader
    from maka.config import Config, load_config, presets, with_profile
    from maka.contracts.boundary import Boundary, Expansion, FileEntry
    from maka.contracts.commands import (
        AnswerTaken,
        BackgroundStopped,
        CommandChanges,
        LeftFile,
        MessageAccepted,
        SessionCreated,
        StopReceipt,
        UndoneFile,
        UndoReceipt,
    )
    from maka.contracts.content import RunLimits
    from maka.contracts.errors import (
        ExitCode,
        FailureClass,
        LedgerError,
        OutcomeUnknownError,
        Refusal,
        RefusalCode,
        RefusedError,
        StoreHeldError,
        StoreOpenError,
    )
    from maka.contracts.events import Committed, RuntimeEvent
    from maka.contracts.model_ports import ModelProfile
    from maka.contracts.session_events import (
        Abort,
        Complete,
        ErrorEvent,
        PermissionClosureAck,
        RunEnded,
        SandboxBoundaryDecisionAck,
        SandboxBoundaryRequest,
        SessionEvent,
        TextComplete,
        TextDelta,
        ToolResultEvent,
        ToolStart,
        UserQuestionAnswerAck,
        UserQuestionAsked,
    )
    from maka.file_diffs import FileDiff, SessionChanges
    from maka.session_manager import SessionManager
    from maka.subscription import Subscription, SubscriptionLostError
    from projections.artifacts import Artifact
    from projections.background import Shell
    from projections.inbox import PendingWait

__all__ = [
    "Abort",
    "AnswerTaken",
    "Artifact",
    "BackgroundStopped",
    "Boundary",
    "CommandChanges",
    "Committed",
    "Complete",
    "Config",
    "ErrorEvent",
    "ExitCode",
    "Expansion",
    "FailureClass",
    "FileDiff",
    "FileEntry",
    "Host",
    "LedgerError",
    "LeftFile",
    "MessageAccepted",
    "ModelProfile",
    "OutcomeUnknownError",
    "PendingWait",
    "PermissionClosureAck",
    "Refusal",
    "RefusalCode",
    "RefusedError",
    "RunEnded",
    "RunLimits",
    "RuntimeEvent",
    "SandboxBoundaryDecisionAck",
    "SandboxBoundaryRequest",
    "SessionChanges",
    "SessionCreated",
    "SessionEvent",
    "SessionManager",
    "Shell",
    "StopReceipt",
    "StoreHeldError",
    "StoreOpenError",
    "Subscription",
    "SubscriptionLostError",
    "TextComplete",
    "TextDelta",
    "ToolResultEvent",
    "ToolStart",
    "UndoReceipt",
    "UndoneFile",
    "UserQuestionAnswerAck",
    "UserQuestionAsked",
    "load_config",
    "open_host",
    "open_reader",
    "presets",
    "with_profile",
]

_HOMES = {
    "maka.app": "Host open_host open_reader",
    "maka.config": "Config load_config presets with_profile",
    "maka.contracts.boundary": "Boundary Expansion FileEntry",
    "maka.contracts.commands": (
        "AnswerTaken BackgroundStopped CommandChanges LeftFile MessageAccepted SessionCreated StopReceipt UndoReceipt "
        "UndoneFile"
    ),
    "maka.contracts.content": "RunLimits",
    "maka.contracts.errors": (
        "ExitCode FailureClass LedgerError OutcomeUnknownError Refusal RefusalCode RefusedError StoreHeldError "
        "StoreOpenError"
    ),
    "maka.contracts.events": "Committed RuntimeEvent",
    "maka.contracts.model_ports": "ModelProfile",
    "maka.contracts.session_events": (
        "Abort Complete ErrorEvent PermissionClosureAck RunEnded SandboxBoundaryDecisionAck SandboxBoundaryRequest "
        "SessionEvent TextComplete TextDelta ToolResultEvent ToolStart UserQuestionAnswerAck UserQuestionAsked"
    ),
    "maka.file_diffs": "FileDiff SessionChanges",
    "maka.session_manager": "SessionManager",
    "maka.subscription": "Subscription SubscriptionLostError",
    "projections.artifacts": "Artifact",
    "projections.background": "Shell",
    "projections.inbox": "PendingWait",
}


def _load(name: str) -> object:
    """Return a public name's value from the module that defines it. Raises AttributeError."""
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'maka' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:
    # Hidden from type checkers: they know the names from above, and would else take any other for one of ours.
    __getattr__ = _load
