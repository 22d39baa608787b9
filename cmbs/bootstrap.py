"""The composition root: settings in, a server out. The only module that picks drivers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.kernel.requests import Limits
from cmbs.belief.kits import media_type_of
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidRequest
from cmbs.spi import discover_providers
from cmbs.stores import open_store, open_tee
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.system import SystemClock

if TYPE_CHECKING:
    from cmbs.http.app import BeliefApp
    from cmbs.http.service import Service
    from cmbs.identity.registry import KeyRegistry
    from cmbs.stores.tee import TeeStore
    from cmbs.substrate.server import SubstrateServer
    from cmbs.tee.tokens import TokenFile
    from cmbs.transparency.notary import Notary
    from cmbs.webhooks.dispatcher import Dispatcher

DEFAULT_STORE = "sqlite:///cmbs.db"
_TIMEOUT = "CMBS_STORE_TIMEOUT_SECONDS"
_MAX_REQUESTS = "CMBS_MAX_REQUESTS"
_MAX_WAIT = "CMBS_MAX_WAIT_SECONDS"
_MAX_FOLLOWERS = "CMBS_MAX_FOLLOWERS"
_HEARTBEAT = "CMBS_HEARTBEAT_SECONDS"
_INTERVAL = "CMBS_CHECKPOINT_INTERVAL"
_WEBHOOK_TIMEOUT = "CMBS_WEBHOOK_TIMEOUT"
_WEBHOOK_RETRY = "CMBS_WEBHOOK_RETRY"
_MAX_DIGITS = 18
_MAX_SECONDS = 3600
MAX_WEBHOOK_TIMEOUT = 60
# Beyond the store's own limit, so that what it says of its failure is heard.
_GRACE_SECONDS = 5
_SHOWN = 64  # characters of a value that makes no sense
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator may choose. Each is an environment variable too: `CMBS_STORE`, `CMBS_LIMIT_PAGE_SIZE`, ..."""

    store: str = DEFAULT_STORE
    validate_hypotheses: bool = False
    limits: Limits = field(default_factory=Limits)
    space_limits: SpaceLimits = field(default_factory=SpaceLimits)
    store_timeout_seconds: int = 10
    tee: str = ""
    tee_token: str = field(default="", repr=False)
    tee_ca: str = ""
    # Our own certificate chain and its key, for a Tee that asks for one; a file of tokens that is read when it changes.
    tee_cert: str = ""
    tee_key: str = ""
    tee_token_file: str = ""
    max_requests: int = 1024
    # The longest that a request with `wait` is held.
    max_wait_seconds: int = 30
    # How many may follow streams in one process, and how often each is told that it still does.
    max_followers: int = 256
    heartbeat_seconds: int = 5
    # The file of the key that checkpoints are signed with; where it is empty, none are signed.
    signing_key: str = ""
    # The name of the log, where the key is made; empty makes one up.
    checkpoint_origin: str = ""
    checkpoint_interval: int = 10
    # Each as `URL#KEY`.
    witnesses: tuple[str, ...] = ()
    # Files of kits that are put on record when a server starts.
    kits: tuple[str, ...] = ()
    # The file of the key that secrets of webhooks are derived from; where it is empty, no webhook is told anything.
    webhook_key: str = ""
    # Whether webhooks may be in private networks.
    webhook_private: bool = False
    # How long an endpoint may take to answer, and how long after a failure it is tried again for the first time.
    webhook_timeout_seconds: int = 15
    webhook_retry_seconds: int = 5

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """The settings that the environment asks for; InvalidRequest names a variable that makes no sense."""
        numbers = {}
        if _TIMEOUT in environment:
            numbers["store_timeout_seconds"] = _seconds(_TIMEOUT, environment)
        if _MAX_REQUESTS in environment:
            numbers["max_requests"] = _positive(_MAX_REQUESTS, environment)
        if _MAX_WAIT in environment:
            numbers["max_wait_seconds"] = _seconds(_MAX_WAIT, environment)
        if _MAX_FOLLOWERS in environment:
            numbers["max_followers"] = _positive(_MAX_FOLLOWERS, environment)
        if _HEARTBEAT in environment:
            numbers["heartbeat_seconds"] = _seconds(_HEARTBEAT, environment)
        if _INTERVAL in environment:
            numbers["checkpoint_interval"] = _seconds(_INTERVAL, environment)
        if _WEBHOOK_TIMEOUT in environment:
            numbers["webhook_timeout_seconds"] = _seconds(_WEBHOOK_TIMEOUT, environment, MAX_WEBHOOK_TIMEOUT)
        if _WEBHOOK_RETRY in environment:
            numbers["webhook_retry_seconds"] = _seconds(_WEBHOOK_RETRY, environment)
        return cls(
            store=environment.get("CMBS_STORE", DEFAULT_STORE),
            validate_hypotheses=_flag("CMBS_VALIDATE_HYPOTHESES", environment),
            limits=Limits(**_limits(Limits, environment)),
            space_limits=SpaceLimits(**_limits(SpaceLimits, environment)),
            tee=environment.get("CMBS_TEE", ""),
            tee_token=environment.get("CMBS_TEE_TOKEN", ""),
            tee_ca=environment.get("CMBS_TEE_CA", ""),
            tee_cert=environment.get("CMBS_TEE_CERT", ""),
            tee_key=environment.get("CMBS_TEE_KEY", ""),
            tee_token_file=environment.get("CMBS_TEE_TOKEN_FILE", ""),
            signing_key=environment.get("CMBS_SIGNING_KEY", ""),
            checkpoint_origin=environment.get("CMBS_CHECKPOINT_ORIGIN", ""),
            witnesses=tuple(environment.get("CMBS_WITNESS", "").split()),
            kits=tuple(filter(None, environment.get("CMBS_KIT", "").split(os.pathsep))),
            webhook_key=environment.get("CMBS_WEBHOOK_KEY", ""),
            webhook_private=_flag("CMBS_WEBHOOK_PRIVATE", environment),
            **numbers,
        )

    def to_environment(self) -> dict[str, str]:
        """The same settings as variables, for worker processes."""
        limits = {
            _variable(item.name): str(getattr(chosen, item.name))
            for chosen in (self.limits, self.space_limits)
            for item in fields(chosen)
        }
        return {
            "CMBS_STORE": self.store,
            "CMBS_VALIDATE_HYPOTHESES": str(int(self.validate_hypotheses)),
            _TIMEOUT: str(self.store_timeout_seconds),
            "CMBS_TEE": self.tee,
            "CMBS_TEE_TOKEN": self.tee_token,
            "CMBS_TEE_CA": self.tee_ca,
            "CMBS_TEE_CERT": self.tee_cert,
            "CMBS_TEE_KEY": self.tee_key,
            "CMBS_TEE_TOKEN_FILE": self.tee_token_file,
            "CMBS_SIGNING_KEY": self.signing_key,
            "CMBS_CHECKPOINT_ORIGIN": self.checkpoint_origin,
            _INTERVAL: str(self.checkpoint_interval),
            "CMBS_WITNESS": " ".join(self.witnesses),
            "CMBS_KIT": os.pathsep.join(self.kits),
            "CMBS_WEBHOOK_KEY": self.webhook_key,
            "CMBS_WEBHOOK_PRIVATE": str(int(self.webhook_private)),
            _WEBHOOK_TIMEOUT: str(self.webhook_timeout_seconds),
            _WEBHOOK_RETRY: str(self.webhook_retry_seconds),
            _MAX_REQUESTS: str(self.max_requests),
            _MAX_WAIT: str(self.max_wait_seconds),
            _MAX_FOLLOWERS: str(self.max_followers),
            _HEARTBEAT: str(self.heartbeat_seconds),
            **limits,
        }


def build_server(settings: Settings) -> BeliefServer:
    """A belief server as the settings ask for."""
    tee = build_tee_store(settings)
    store = open_store(settings.store, settings.store_timeout_seconds)
    if tee is None:
        return BeliefServer(
            settings.validate_hypotheses, store=store, limits=settings.limits, providers=discover_providers
        )
    return BeliefServer(
        settings.validate_hypotheses,
        store=tee,
        audit_log=store,
        limits=settings.limits,
        store_timeout_seconds=settings.store_timeout_seconds + _GRACE_SECONDS,
        providers=discover_providers,
    )


def put_kits(settings: Settings, server: BeliefServer) -> None:
    """Put the kits that the settings name on record; those that are there stay as they are."""
    for path in settings.kits:
        text, media_type = read_kit_file(path)
        try:
            server.kits.put(text, media_type)
        except InvalidRequest as exc:
            raise InvalidRequest(f"`{path}`: {exc.message}", {**exc.details, "variable": "CMBS_KIT"}) from exc


def read_kit_file(path: str) -> tuple[str, MediaType]:
    """The text of a kit file, and its language by the ending; InvalidRequest where it cannot be read."""
    try:
        text = Path(path).read_bytes().decode()
    except OSError as exc:
        raise InvalidRequest(f"cannot read `{path}`: {exc.strerror}", {"variable": "CMBS_KIT"}) from exc
    except UnicodeDecodeError as exc:
        raise InvalidRequest(f"`{path}` is not valid UTF-8", {"variable": "CMBS_KIT"}) from exc
    return text, media_type_of(path, text)


def build_app(settings: Settings, environment: Mapping[str, str], *, anyone: bool = False) -> BeliefApp:
    """The whole application over HTTP; its arguments are those of `build_service`."""
    # Here, because the kernel alone is installed without what serves.
    from cmbs.http.app import BeliefApp

    return BeliefApp(build_service(settings, environment, anyone=anyone), settings.max_requests)


def build_service(settings: Settings, environment: Mapping[str, str], *, anyone: bool = False) -> Service:
    """All that a server does: belief, spaces, keys and, where there is a signing key, checkpoints.

    While its store has no keys, it serves only this machine, or with `anyone` every caller.
    """
    from cmbs.http.service import Service
    from cmbs.identity.gate import Gate
    from cmbs.identity.registry import KeyRegistry

    server = build_server(settings)
    registry = KeyRegistry(server.log)
    spaces = build_substrate(server, environment, settings.space_limits, registry)
    spaces.start()
    notary = build_notary(settings, server, spaces)
    put_kits(settings, server)
    service = Service(
        server,
        Gate(registry, anyone=anyone),
        spaces,
        notary=notary,
        # Half of the requests at most: those that are answered at once go on.
        max_waiters=max(1, settings.max_requests // 2),
        max_wait_seconds=settings.max_wait_seconds,
        max_followers=settings.max_followers,
        heartbeat_seconds=settings.heartbeat_seconds,
        dispatcher=build_dispatcher(settings, server, spaces),
    )
    # Only now that the service observes what it finds.
    if notary is not None:
        notary.start()
    if service.dispatcher is not None:
        service.dispatcher.start()
    return service


def build_dispatcher(settings: Settings, belief: BeliefServer, spaces: SubstrateServer) -> Dispatcher | None:
    """What sends webhooks of what is written to the log; None where the settings name no webhook key.

    Close it before the servers. It sends nothing before `start` is called.
    """
    if not settings.webhook_key:
        return None
    # Here, because the kernel alone is installed without what sends.
    from cmbs.webhooks.dispatcher import Dispatcher
    from cmbs.webhooks.keys import WebhookKey
    from cmbs.webhooks.registry import WebhookRegistry
    from cmbs.webhooks.sending import EgressRules, Sender

    rules = EgressRules(settings.webhook_private)
    registry = WebhookRegistry(belief.log, WebhookKey.open(Path(settings.webhook_key)), rules)
    sender = Sender(rules, settings.webhook_timeout_seconds)
    return Dispatcher(registry, belief, spaces, sender, retry_seconds=settings.webhook_retry_seconds)


def build_substrate(
    belief: BeliefServer,
    environment: Mapping[str, str],
    limits: SpaceLimits | None = None,
    registry: KeyRegistry | None = None,
) -> SubstrateServer:
    """Spaces over the log of a belief server, whose sessions their constraints may read.

    Close it before the belief server. Its deadline scheduler does not run before `start` is called. Whether a change of
    policy takes two operators where a new space does not say, follows from the keys in `registry`; without it, one is
    enough.
    """
    # Here, because the kernel alone is installed without what spaces need.
    from cmbs.substrate.belief_source import ServedBelief
    from cmbs.substrate.server import SubstrateServer
    from cmbs.substrate.tools.opening import open_tools

    return SubstrateServer(
        log=belief.log,
        belief=ServedBelief(belief),
        runner=open_tools(environment),
        limits=limits,
        keeper_seconds=None,
        default_space=True,
        count_operator_keys=(lambda: 0) if registry is None else registry.count_operators,
    )


def build_notary(settings: Settings, belief: BeliefServer, spaces: SubstrateServer | None = None) -> Notary | None:
    """What signs checkpoints over the log of a belief server; None where the settings name no signing key.

    Close it before the belief server. It signs on demand before `start` is called.
    """
    if not settings.signing_key:
        if settings.witnesses:
            raise InvalidRequest("witnesses cosign what is signed: name a signing key", {"variable": "CMBS_WITNESS"})
        return None
    # Here, because the kernel alone is installed without what signs.
    from cmbs.transparency.key_files import KeyFiles
    from cmbs.transparency.notary import Notary
    from cmbs.transparency.witness_client import WitnessAddress

    notary = Notary(
        belief.log,
        KeyFiles.open(Path(settings.signing_key), settings.checkpoint_origin, SystemClock().now()),
        interval_seconds=settings.checkpoint_interval,
        witnesses=[WitnessAddress.parse(text) for text in settings.witnesses],
    )
    belief.observe_appends(notary.note_appends)
    if spaces is not None:
        spaces.observe_appends(notary.note_appends)
    return notary


def build_tee_store(settings: Settings) -> TeeStore | None:
    """Where tombstones go if not into the store of events; None where the settings name no Tee."""
    if not settings.tee:
        return None
    authorities = _read_pem("CMBS_TEE_CA", settings.tee_ca)
    cert, key = _read_pem("CMBS_TEE_CERT", settings.tee_cert), _read_pem("CMBS_TEE_KEY", settings.tee_key)
    if (cert is None) != (key is None) or (cert is not None and authorities is None):
        raise InvalidRequest(
            "a certificate for Tee needs `CMBS_TEE_CA`, `CMBS_TEE_CERT` and `CMBS_TEE_KEY`",
            {"variable": "CMBS_TEE_CERT"},
        )
    return open_tee(
        settings.tee,
        token=settings.tee_token or _token_file(settings),
        authorities=authorities,
        certificate=None if cert is None or key is None else (cert, key),
        timeout_seconds=settings.store_timeout_seconds,
    )


def _read_pem(variable: str, path: str) -> bytes | None:
    try:
        return Path(path).read_bytes() if path else None
    except OSError as exc:
        raise InvalidRequest(f"cannot read `{path}`: {exc.strerror}", {"variable": variable}) from exc


def _token_file(settings: Settings) -> TokenFile | None:
    if not settings.tee_token_file:
        return None
    # Here, because the kernel alone is installed without what Tee needs.
    from cmbs.tee.tokens import TokenFile

    return TokenFile(settings.tee_token_file)


def _variable(limit: str) -> str:
    return f"CMBS_LIMIT_{limit.upper()}"


def _limits(kind: type[Limits | SpaceLimits], environment: Mapping[str, str]) -> dict[str, int]:
    asked = [item.name for item in fields(kind) if _variable(item.name) in environment]
    return {name: _positive(_variable(name), environment) for name in asked}


def _positive(name: str, environment: Mapping[str, str]) -> int:
    text = environment[name]
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) > 0):
        raise InvalidRequest(f"`{name}` must be a whole number above 0, got `{text[:_SHOWN]}`", {"variable": name})
    return int(text)


def _seconds(name: str, environment: Mapping[str, str], maximum: int = _MAX_SECONDS) -> int:
    seconds = _positive(name, environment)
    if seconds > maximum:
        raise InvalidRequest(f"`{name}` must be at most {maximum}, got `{seconds}`", {"variable": name})
    return seconds


def _flag(name: str, environment: Mapping[str, str]) -> bool:
    text = environment.get(name, "").strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise InvalidRequest(
            f"`{name}` must be one of {', '.join(_TRUE + _FALSE[:-1])}, got `{text[:_SHOWN]}`", {"variable": name}
        )
    return text in _TRUE
