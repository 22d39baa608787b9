"""Signed notes and checkpoints, against the format written down here a second time and against published examples."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from cmbs.errors import InvalidRequest
from cmbs.ledger.merkle import leaf_hash, root_of_hashes
from cmbs.ledger.proofs import (
    LogTree,
    consistency_path,
    inclusion_path,
    verify_consistency,
    verify_inclusion,
)
from cmbs.transparency.kernel.checkpoint import (
    Checkpoint,
    check_signature,
    compare_checkpoints,
    list_reachable,
    parse_keys,
    retire_key,
)
from cmbs.transparency.kernel.documents import describe_checkpoint, describe_consistency, parse_path
from cmbs.transparency.kernel.faults import FaultKind
from cmbs.transparency.kernel.notes import Algorithm, Note, Signature, SigningKey, VerifierKey, validate_name
from cmbs.transparency.kernel.published import LogKey, LogKeys
from tests.support.subtests import for_each

# The example of the Go package that signed notes come from: its key, its text and its signature.
PETER_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
PETER_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
SEED = bytes(range(32))
NAME = "example.com/log"
KEY = SigningKey(NAME, Algorithm.ED25519, SEED)
WITNESS = SigningKey("witness.example/w1", Algorithm.COSIGNATURE_V1, bytes(reversed(SEED)))
CHECKPOINT = Checkpoint(NAME, 20852163, hashlib.sha256(b"root").digest())
KEYS = [LogKey(KEY.verifier.text, "2026-01-01T00:00:00.000000Z")]


@pytest.mark.req("TLOG-NOTE-01")
def test_the_published_example_of_a_signed_note_verifies() -> None:
    key, note = VerifierKey.parse(PETER_KEY), Note.parse(PETER_NOTE)
    assert key.verifies(note.text, note.signatures[0])
    assert note.encoded == PETER_NOTE
    assert not key.verifies(note.text.replace("your", "our"), note.signatures[0])


@pytest.mark.req("TLOG-NOTE-01")
def test_a_checkpoint_is_the_note_that_its_format_describes() -> None:
    private = Ed25519PrivateKey.from_private_bytes(SEED)
    public = private.public_key().public_bytes_raw()
    text = f"{NAME}\n20852163\n{base64.b64encode(hashlib.sha256(b'root').digest()).decode()}\n"
    key_id = hashlib.sha256(NAME.encode() + b"\n\x01" + public).digest()[:4]
    line = base64.b64encode(key_id + private.sign(text.encode())).decode()
    assert Note(CHECKPOINT.text, (KEY.sign(CHECKPOINT.text),)).encoded == f"{text}\n— {NAME} {line}\n"
    encoded = base64.b64encode(b"\x01" + public).decode()
    assert KEY.verifier.text == f"{NAME}+{key_id.hex()}+{encoded}"
    assert SigningKey.parse(KEY.text) == KEY
    assert Checkpoint.parse(text) == CHECKPOINT


@pytest.mark.req("TLOG-NOTE-01")
def test_a_cosignature_is_over_its_time_and_the_whole_text() -> None:
    private = Ed25519PrivateKey.from_private_bytes(bytes(reversed(SEED)))
    signature = WITNESS.cosign(CHECKPOINT.text, 1679315147)
    assert signature.value[:8] == (1679315147).to_bytes(8, "big")
    assert signature.value[8:] == private.sign(b"cosignature/v1\ntime 1679315147\n" + CHECKPOINT.text.encode())
    assert (signature.time, WITNESS.verifier.verifies(CHECKPOINT.text, signature)) == (1679315147, True)
    later = signature._replace(value=(1679315148).to_bytes(8, "big") + signature.value[8:])
    assert not WITNESS.verifier.verifies(CHECKPOINT.text, later)
    assert WITNESS.verifier.key_id != SigningKey(WITNESS.name, Algorithm.ED25519, WITNESS.seed).verifier.key_id


@for_each(
    "text",
    [
        "",
        "no signature\n",
        "text\n\n",
        "text\n\n— name\n",
        "text\n\n— name !!!!\n",
        "text\n\n— name AAAA\n",
        "text\n\n— name AAAAAAAA",
        "te\txt\n\n— name AAAAAAAA\n",
        "text\n\n- name AAAAAAAA\n",
        "text\n\n— name AAAAA\n",
        "text\n\n" + "— name AAAAAAAA\n" * 65,
    ],
)
def test_what_is_no_note_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Note.parse(text)


@for_each(
    "text",
    [
        f"{NAME}\n1\n",
        f"{NAME}\n01\n{'A' * 43}=\n",
        f"{NAME}\n-1\n{'A' * 43}=\n",
        f"{NAME}\n1\n{'A' * 42}==\n",
        f"{NAME}\n1\nnot base64!\n",
        f"\n1\n{'A' * 43}=\n",
        f"{NAME}\n9007199254740993\n{'A' * 43}=\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Checkpoint.parse(text)


@for_each(
    "text",
    [
        "some+text",
        "name+00000000+AAAA",
        KEY.verifier.text[:-4] + "AAA=",
        KEY.verifier.text.replace("example", "other"),
        KEY.verifier.text.replace("+AQ", "+Ag"),
        "na me+" + KEY.verifier.text.partition("+")[2],
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        VerifierKey.parse(text)
    with pytest.raises(InvalidRequest) as caught:
        SigningKey.parse(f"PRIVATE+KEY+{text}")
    assert text not in str(caught.value)


def test_a_private_key_is_shown_nowhere() -> None:
    assert KEY.text not in repr(KEY)
    with pytest.raises(InvalidRequest) as caught:
        SigningKey.parse(KEY.text[1:])
    assert KEY.text[20:] not in str(caught.value)
    with pytest.raises(InvalidRequest):
        SigningKey.parse(KEY.text.replace("example", "other"))


@pytest.mark.req("TLOG-CHECK-01")
def test_signatures_are_judged_by_the_keys_that_a_reader_trusts() -> None:
    good = Note(CHECKPOINT.text, (WITNESS.cosign(CHECKPOINT.text, 1), KEY.sign(CHECKPOINT.text)))
    assert check_signature(good, KEYS) is None
    other = SigningKey(NAME, Algorithm.ED25519, bytes(32))
    fault = check_signature(Note(CHECKPOINT.text, (other.sign(CHECKPOINT.text),)), KEYS)
    assert fault is not None
    assert fault.kind is FaultKind.UNKNOWN_KEY
    forged = Signature(NAME, KEY.verifier.key_id, bytes(64))
    for signatures in ((forged,), (KEY.sign(CHECKPOINT.text), forged), (forged._replace(value=b"short"),)):
        fault = check_signature(Note(CHECKPOINT.text, signatures), KEYS)
        assert fault is not None
        assert fault.kind is FaultKind.FORGED_SIGNATURE


@pytest.mark.req("TLOG-KEYS-01")
def test_a_retired_key_names_its_successor_and_signs_nothing_larger() -> None:
    keys = LogKeys(NAME, KEYS)
    second, third = (SigningKey(NAME, Algorithm.ED25519, bytes([number]) * 32) for number in (2, 3))
    keys = retire_key(keys, KEY, second, 10, "2026-02-01T00:00:00.000000Z")
    keys = retire_key(keys, second, third, 20, "2026-03-01T00:00:00.000000Z")
    reached = list_reachable(keys, [KEY.verifier.text])
    assert [each.vkey for each in reached] == [each.verifier.text for each in (KEY, second, third)]
    assert [each.retired_size for each in reached] == [10, 20, None]
    assert [each.vkey for each in list_reachable(keys, [second.verifier.text])] == [
        each.verifier.text for each in (second, third)
    ]
    for signer, size, kind in ((KEY, 10, None), (KEY, 11, FaultKind.RETIRED_KEY), (third, 21, None)):
        text = Checkpoint(NAME, size, bytes(32)).text
        fault = check_signature(Note(text, (signer.sign(text),)), reached)
        assert (None if fault is None else fault.kind) is kind
    both = Checkpoint(NAME, 15, bytes(32)).text
    assert check_signature(Note(both, (KEY.sign(both), second.sign(both))), reached) is None


@pytest.mark.req("TLOG-KEYS-01")
def test_a_successor_that_the_old_key_did_not_sign_is_not_trusted() -> None:
    second, unrelated = (SigningKey(NAME, Algorithm.ED25519, bytes([number]) * 32) for number in (2, 3))
    honest = retire_key(LogKeys(NAME, KEYS), KEY, second, 10, "2026-02-01T00:00:00.000000Z")
    with pytest.raises(InvalidRequest, match="not the last key"):
        retire_key(honest, KEY, second, 10, "2026-02-01T00:00:00.000000Z")
    stolen = retire_key(LogKeys(NAME, [LogKey(unrelated.verifier.text, "")]), unrelated, second, 10, "")
    forged = LogKeys(NAME, [msgspec.structs.replace(stolen.keys[0], vkey=KEY.verifier.text), stolen.keys[1]])
    elsewhere = retire_key(LogKeys("example.com/other", KEYS), KEY, second, 10, "2026-02-01T00:00:00.000000Z")
    assert [each.vkey for each in list_reachable(forged, [KEY.verifier.text])] == [KEY.verifier.text]
    mixed = LogKeys(NAME, [elsewhere.keys[0], honest.keys[1]])
    assert [each.vkey for each in list_reachable(mixed, [KEY.verifier.text])] == [KEY.verifier.text]
    garbled = LogKeys(NAME, [msgspec.structs.replace(honest.keys[0], succession="garbled")])
    assert list_reachable(garbled, [KEY.verifier.text]) == KEYS
    assert [each.vkey for each in list_reachable(honest, [unrelated.verifier.text])] == [unrelated.verifier.text]
    for content in (
        b"{}",
        b"[",
        b"[" * 5_000,
        b'{"origin":"a","keys":[]}',
        b'{"origin":"a","keys":[{"vkey":"a","created_ts":""}]}',
    ):
        with pytest.raises(InvalidRequest):
            parse_keys(content)


@pytest.mark.req("TLOG-KEYS-01")
@pytest.mark.parametrize("more", [{}, {"origin": NAME, "keys": []}, {"retired": []}])
def test_keys_of_an_earlier_format_are_refused_as_such(more: dict[str, Any]) -> None:
    document = msgspec.json.encode({"format": "cmbs-checkpoint-keys/1", **more})
    with pytest.raises(InvalidRequest) as refused:
        parse_keys(document)
    assert refused.value.message == "keys of an earlier format, which this software does not read"


@pytest.mark.req("TLOG-PROOF-01")
@given(st.integers(0, 70), st.data())
def test_the_growing_tree_gives_the_roots_and_paths_of_the_reference(size: int, data: st.DataObject) -> None:
    leaves = [leaf_hash(bytes([number])) for number in range(size + 3)]
    tree = LogTree()
    for leaf in leaves:
        tree.append(leaf)
    root = tree.root_at(size)
    assert (root, tree.size) == (root_of_hashes(leaves[:size]), size + 3)
    old = data.draw(st.integers(0, size))
    path = tree.consistency_path(old, size)
    assert path == consistency_path(leaves[:size], old)
    assert verify_consistency(old, tree.root_at(old), size, root, path)
    if size:
        index = data.draw(st.integers(0, size - 1))
        assert tree.inclusion_path(index, size) == inclusion_path(leaves[:size], index)
        assert verify_inclusion(leaves[index], index, size, tree.inclusion_path(index, size), root)
    for call in (
        lambda: tree.root_at(size + 4),
        lambda: tree.inclusion_path(size, size),
        lambda: tree.consistency_path(size + 1, size),
    ):
        with pytest.raises(IndexError):
            call()


@pytest.mark.req("TLOG-CHECK-02")
def test_two_checkpoints_are_of_one_log_or_a_split_view() -> None:
    leaves = [leaf_hash(bytes([number])) for number in range(7)]
    small, large = (Checkpoint(NAME, size, root_of_hashes(leaves[:size])) for size in (3, 7))
    path = consistency_path(leaves, 3)
    assert compare_checkpoints(small, small, None) is None
    assert compare_checkpoints(small, large, path) is None
    assert compare_checkpoints(large, small, path) is None
    kinds = [
        compare_checkpoints(small, small._replace(root=bytes(32)), None),
        compare_checkpoints(small._replace(root=bytes(32)), large, path),
        compare_checkpoints(small, large, None),
        compare_checkpoints(small, large._replace(origin="other"), path),
    ]
    assert [each and each.kind for each in kinds] == [
        FaultKind.SPLIT_VIEW,
        FaultKind.SPLIT_VIEW,
        FaultKind.UNPROVED,
        FaultKind.OTHER_LOG,
    ]


@pytest.mark.req("TLOG-HTTP-01")
def test_documents_repeat_what_their_note_says() -> None:
    note = Note(CHECKPOINT.text, (KEY.sign(CHECKPOINT.text),))
    document = describe_checkpoint(note)
    assert (document.note, document.origin, document.size) == (note.encoded, NAME, CHECKPOINT.size)
    assert (document.format, document.kind, document.root) == ("cmbs/1/proof", "checkpoint", CHECKPOINT.root.hex())
    proof = describe_consistency(note, 3, [bytes(32)])
    assert (proof.from_size, proof.size, parse_path(proof.path)) == (3, CHECKPOINT.size, [bytes(32)])
    with pytest.raises(InvalidRequest, match="not hexadecimal"):
        parse_path(["xyz"])


@for_each("name", ["", "a b", "a+b", "a\nb", "a\u00a0b"])
def test_a_key_has_a_name_without_spaces_and_plus_signs(name: str) -> None:
    with pytest.raises(InvalidRequest):
        validate_name(name)
