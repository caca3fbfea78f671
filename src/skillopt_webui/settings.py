"""What the page may use: its folders, its address and its token."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from skillopt.errors import UserError

PORT = 7860
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, kw_only=True)
class PageSettings:
    """The settings of the page. Folders are absolute. Files outside of these folders are neither read nor run."""

    workspace: Path
    """The folder in which runs start; relative paths in configs begin here."""
    outputs: tuple[Path, ...]
    """Folders of runs. The first folder also has the page's own records, below `.webui`."""
    configs: tuple[Path, ...]
    """Folders of configs."""
    searched: Path | None = None
    """One more folder below which configs are searched for; None if there is no such folder."""
    data: tuple[Path, ...]
    """Folders that a config may name for data, skills and prompts."""
    host: str = "127.0.0.1"
    port: int = PORT
    token: str = field(default="", repr=False)
    """The token for the login; empty if no token is needed (only with a loopback address)."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names by which a browser may reach the page."""
    reach: str = "the page's folders; to add a folder, start the page with --data FOLDER"
    """The end of error messages: the name of the folders, and how to add a folder."""

    @property
    def records(self) -> Path:
        return self.outputs[0] / ".webui"


def make_settings(
    *,
    workspace: Path,
    outputs: list[Path] | None = None,
    configs: list[Path] | None = None,
    data: list[Path] | None = None,
    host: str = "127.0.0.1",
    port: int = PORT,
    token: str = "",
    allowed_hosts: list[str] | None = None,
) -> PageSettings:
    """Make settings. By default, runs are in the workspace's folder `outputs` and configs in its folder `configs`; data
    and more configs may be anywhere in the workspace.

    An address that other machines can reach always needs a token. If none is given, a random token is made.
    """
    workspace = workspace.resolve()
    if token and len(token) < 12:
        raise UserError(
            "SKILLOPT_UI_TOKEN: is shorter than 12 characters and could be guessed; set a longer token, or none"
        )
    if not token and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    return PageSettings(
        workspace=workspace,
        outputs=_folders(outputs or [Path("outputs")], workspace),
        configs=_folders(configs or [Path("configs")], workspace),
        searched=None if configs else workspace,
        data=_folders(data or [Path()], workspace),
        host=host,
        port=port,
        token=token,
        allowed_hosts=tuple(name.lower() for name in allowed_hosts or []),
    )


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _folders(paths: list[Path], workspace: Path) -> tuple[Path, ...]:
    return tuple((workspace / path).resolve() for path in paths)
