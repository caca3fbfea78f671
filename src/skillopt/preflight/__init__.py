"""Before anything is paid."""
