"""Which folders are too broad to be proposed: what is everyone's, what others obey, and what holds that."""

import os
from pathlib import Path

import pytest

from maka.tools.broad import is_broad
from maka.tools.policy import Ground

SEARCHED = Ground(searched=("/data/tools/bin",))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    home = tmp_path.resolve() / "people" / "me"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return str(home)


BROAD = [
    *("HOME", "HOME/..", "HOME/../other", "HOME/Documents", "HOME/.config", "HOME/.local", "HOME/bin"),
    *("HOME/.config/autostart", "HOME/.config/systemd", "HOME/.config/systemd/user/x.service.d"),
    *("HOME/.local/bin", "HOME/.local/share", "HOME/.local/share/systemd/user", "HOME/.cargo/bin"),
    *(
        "/",
        "/home",
        os.path.join("/home", "other"),
        "/srv",
        "/srv/www",
        "/mnt",
        "/mnt/c",
        "/mnt/c/Users",
        "/media/me/disk",
    ),
    *("/etc", "/etc/cron.d", "/etc/systemd/system", "/etc/a/b/c", "/usr/lib/systemd/system", "/usr/local/lib"),
    *("/boot/grub", "/opt/app", "/var/www", "/var/lib/dpkg/info", "/var/spool/cron/crontabs", "/work"),
    *("/data/tools/bin", "/data/tools/bin/in", "/data/tools"),
]
NOT_BROAD = [
    *("HOME/Documents/letters", "HOME/code/project", "HOME/.config/app", "HOME/.cache/pip", "HOME/.local/share/app"),
    *("/srv/cache/build", "/mnt/c/Users/me", "/media/me/disk/x", "/var/www/site", "/opt/app/data", "/data/tools/src"),
]


@pytest.mark.parametrize("folder", BROAD)
def test_a_folder_that_holds_what_others_obey_is_broad(home: str, folder: str) -> None:
    path = str(Path(folder.replace("HOME", home)).resolve())
    assert is_broad(path, f"{home}/code/project", SEARCHED)


@pytest.mark.parametrize("folder", NOT_BROAD)
def test_another_folder_is_not(home: str, folder: str) -> None:
    assert not is_broad(folder.replace("HOME", home), f"{home}/code/elsewhere", SEARCHED)


def test_the_workspace_was_chosen_unless_the_home_lies_in_it(home: str) -> None:
    for workspace in (f"{home}/project", "/srv/site", "/data/tools"):
        assert is_broad(workspace, f"{home}/else", SEARCHED)
        assert not is_broad(workspace, workspace, SEARCHED)
        assert not is_broad(f"{workspace}/bin", workspace, SEARCHED)
    assert is_broad(home, home, SEARCHED)
    assert is_broad("/", "/", SEARCHED)
