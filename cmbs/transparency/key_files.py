"""The files of a log's signing key, outside the database: what was signed must outlast what is in there.

`FILE` holds the private key, `FILE.keys` the public keys and when each was retired, `FILE.checkpoint` the note that was
signed last, and `FILE.next` the new key while `rotate` replaces the old one. Processes of one machine may share them.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from cmbs.errors import InvalidRequest, StoreUnavailable
from cmbs.transparency.kernel.checkpoint import Checkpoint, parse_keys, retire_key
from cmbs.transparency.kernel.notes import Algorithm, Note, SigningKey, validate_name
from cmbs.transparency.kernel.published import LogKey, LogKeys

_SECRET, _PUBLIC = 0o600, 0o644
_SEED_BYTES = 32


class UnusableFiles(StoreUnavailable):
    """The files of a key cannot be read or written, or do not fit together: nothing can be signed."""


def make_key(name: str, algorithm: Algorithm = Algorithm.ED25519) -> SigningKey:
    """A new key."""
    return SigningKey(validate_name(name), algorithm, secrets.token_bytes(_SEED_BYTES))


def replace_file(path: Path, data: bytes, mode: int = _PUBLIC, *, durable: bool = True) -> None:
    """Put a file there whole, or leave the one that is there; a crash does not bring that back if it is `durable`."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if not durable:
        return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold off other threads and processes that lock the same file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, _SECRET)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_signing_key(path: Path) -> SigningKey:
    """The private key in a file; InvalidRequest where other accounts may read it, or it is none."""
    if path.stat().st_mode & 0o077:
        raise InvalidRequest(f"other accounts may read the signing key `{path.name}`: set its mode to 0600")
    return SigningKey.parse(path.read_text("utf-8").strip())


class KeyFiles:
    """The files of one log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._keys = path.with_name(f"{path.name}.keys")
        self._checkpoint = path.with_name(f"{path.name}.checkpoint")
        self._lock = path.with_name(f"{path.name}.lock")
        self._next = path.with_name(f"{path.name}.next")

    @classmethod
    def open(cls, path: Path, origin: str, now: str) -> KeyFiles:
        """The files of a log, made where there are none; an empty `origin` is then a new name."""
        files = cls(path)
        try:
            with files.lock():
                if not path.exists():
                    files.adopt(make_key(origin or f"cmbs-log/{secrets.token_hex(8)}"), now)
                # Read once, so that what is wrong with the files is known before anything is signed.
                files.check()
                key = files.read_key()
        except OSError as exc:
            raise InvalidRequest(f"cannot use the signing key `{path}`: {exc.strerror}") from exc
        except UnusableFiles as exc:
            raise InvalidRequest(exc.message) from exc
        if origin and key.name != origin:
            raise InvalidRequest(f"the signing key `{path}` is of the log `{key.name}`, not of `{origin}`")
        return files

    @classmethod
    def create(cls, path: Path, origin: str, now: str) -> KeyFiles:
        """New files; InvalidRequest where the key would replace another."""
        if path.exists():
            raise InvalidRequest(f"there is a key at `{path}` already; `cmbs checkpoint rotate` replaces it")
        return cls.open(path, origin, now)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold off other processes that sign with this key; what a crash left of a rotation is brought to its end."""
        with ExitStack() as stack:
            with self._report_unusable():
                stack.enter_context(lock_file(self._lock))
                if self._next.exists():
                    self._finish_rotation()
            yield

    def check(self) -> None:
        """UnusableFiles where one of the files cannot be read."""
        self.read_note()
        self.read_keys()
        with self._report_unusable():
            read_signing_key(self.path)

    def read_key(self) -> SigningKey:
        """The key that signs; UnusableFiles where it is not the last of the public keys. Hold the lock meanwhile."""
        listed = self.read_keys().keys[-1].vkey
        with self._report_unusable():
            key = read_signing_key(self.path)
            if key.verifier.text != listed:
                raise InvalidRequest(
                    f"it is `{key.verifier.text}`, and the last key in `{self._keys.name}` is `{listed}`"
                )
        return key

    def read_keys(self) -> LogKeys:
        """The public keys, with the retired ones."""
        with self._report_unusable():
            return parse_keys(self._keys.read_bytes())

    def read_note(self) -> Note | None:
        """The note that was signed last; None where none was."""
        with self._report_unusable():
            try:
                text = self._checkpoint.read_text("utf-8")
            except FileNotFoundError:
                return None
            note = Note.parse(text)
            Checkpoint.parse(note.text)
            return note

    def keep_note(self, note: Note) -> None:
        """Keep the note that was signed last, before it is handed out.

        A crash of the machine may bring the one before back, which is of the same log.
        """
        with self._report_unusable():
            replace_file(self._checkpoint, note.encoded.encode(), durable=False)

    def rotate(self, now: str) -> LogKeys:
        """Sign with a new key from now on. Servers that use these files do so with their next checkpoint."""
        with self.lock():
            old, kept = self.read_key(), self.read_note()
            new = make_key(old.name)
            size = 0 if kept is None else Checkpoint.parse(kept.text).size
            keys = retire_key(self.read_keys(), old, new, size, now)
            # Once the new key is listed, the old one must not sign any more: so the new one is on the disk before.
            replace_file(self._next, f"{new.text}\n".encode(), _SECRET)
            replace_file(self._keys, msgspec.json.encode(keys) + b"\n")
            self._finish_rotation()
        return keys

    def adopt(self, key: SigningKey, now: str) -> None:
        """Make the files of a new log for a key that comes from elsewhere."""
        keys = LogKeys(key.name, [LogKey(key.verifier.text, now)])
        replace_file(self._keys, msgspec.json.encode(keys) + b"\n")
        replace_file(self.path, f"{key.text}\n".encode(), _SECRET)

    def _finish_rotation(self) -> None:
        """Sign with the new key if it is listed; where a crash came before that, it is dropped."""
        new = read_signing_key(self._next)
        if new.verifier.text == self.read_keys().keys[-1].vkey:
            replace_file(self.path, f"{new.text}\n".encode(), _SECRET)
        self._next.unlink()

    @contextmanager
    def _report_unusable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, InvalidRequest, UnicodeDecodeError) as exc:
            reason = exc.message if isinstance(exc, InvalidRequest) else getattr(exc, "strerror", "not UTF-8")
            # Callers without a key read this at /readyz: it names no directory.
            raise UnusableFiles(f"cannot use the signing key `{self.path.name}`: {reason}") from exc
