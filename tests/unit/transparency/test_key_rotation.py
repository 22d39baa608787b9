"""Keys of a log: rotation, crashes in the middle of it, and key files that are not to be used."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from cmbs.errors import InvalidRequest, StoreUnavailable
from cmbs.transparency.kernel.checkpoint import check_signature, list_reachable
from cmbs.transparency.kernel.notes import VerifierKey
from cmbs.transparency.key_files import KeyFiles
from tests.support.signing import NOW, files_in, notary_of
from tests.support.store_fixture import StoreFixture, declared


@pytest.mark.req("TLOG-KEYS-01")
def test_a_rotated_key_signs_with_the_next_checkpoint(sqlite: StoreFixture, tmp_path: Path) -> None:
    server = sqlite.open()
    with closing(notary_of(server, tmp_path)) as notary:
        declared(server)
        old = notary.publish()
        keys = files_in(tmp_path).rotate("2026-02-01T00:00:00.000000Z")
        declared(server)
        new = notary.publish()
        assert notary.keys() == keys
        (retired, current) = keys.keys
        assert (retired.retired_size, retired.retired_ts) == (1, "2026-02-01T00:00:00.000000Z")
        for note, key in ((old, retired), (new, current)):
            assert VerifierKey.parse(key.vkey).verifies(note.text, note.signatures[0])
            assert check_signature(note, list_reachable(keys, [retired.vkey])) is None


@pytest.mark.req("TLOG-KEYS-01")
@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_a_rotation_that_crashes_is_finished_or_undone(
    sqlite: StoreFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    server = sqlite.open()
    with closing(notary_of(server, tmp_path)) as notary:
        declared(server)
        notary.publish()
        files, old, left, rename = files_in(tmp_path), notary.keys().keys[-1].vkey, renames, Path.replace

        def crash(self: Path, target: Path) -> Path:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return rename(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", crash)
            if renames < 3:
                with pytest.raises(KeyboardInterrupt):
                    files.rotate("2026-02-01T00:00:00.000000Z")
            else:
                files.rotate("2026-02-01T00:00:00.000000Z")
        declared(server)
        note = notary.publish()
        keys = files_in(tmp_path).read_keys()
        assert len(keys.keys) == (1 if renames < 2 else 2)
        assert check_signature(note, list_reachable(keys, [old])) is None
        assert not (tmp_path / "signing.key.next").exists()
        files.rotate("2026-03-01T00:00:00.000000Z")
        declared(server)
        assert check_signature(notary.publish(), list_reachable(files.read_keys(), [old])) is None


@pytest.mark.req("TLOG-KEYS-01")
def test_a_key_that_is_not_the_last_listed_one_is_not_used(sqlite: StoreFixture, tmp_path: Path) -> None:
    files = files_in(tmp_path)
    old = files.path.read_bytes()
    server = sqlite.open()
    with closing(notary_of(server, tmp_path)) as notary:
        files.rotate("2026-02-01T00:00:00.000000Z")
        files.path.write_bytes(old)
        with pytest.raises(StoreUnavailable, match="the last key in"):
            notary.publish()
        with pytest.raises(StoreUnavailable, match="the last key in"):
            files.rotate("2026-03-01T00:00:00.000000Z")
        with pytest.raises(InvalidRequest, match="the last key in"):
            files_in(tmp_path)


def test_the_key_is_for_one_account_and_one_log(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    assert files.path.stat().st_mode & 0o777 == 0o600
    assert files_in(tmp_path).read_key() == files.read_key()
    with pytest.raises(InvalidRequest, match=r"not of `example\.com/other`"):
        KeyFiles.open(files.path, "example.com/other", NOW)
    with pytest.raises(InvalidRequest, match="already"):
        KeyFiles.create(files.path, "", NOW)
    with pytest.raises(InvalidRequest, match="cannot use"):
        KeyFiles.open(tmp_path / "missing" / "key", "", NOW)
    assert KeyFiles.create(tmp_path / "other.key", "", NOW).read_key().name.startswith("cmbs-log/")
    files.path.chmod(0o644)
    with pytest.raises(InvalidRequest, match="0600"):
        files_in(tmp_path)
