"""Pure folds from runtime events to the views that people, models and recovery read."""
