// Kits and names of cases: streams with one rule each, as docs/reference/export.md has them.

import { sha256 } from "@noble/hashes/sha2.js";
import { ENVELOPE, StreamCheck, type Entry } from "./chain";
import { expect, takeHash, takeMembers, takeNumber, takeText, type Members } from "./fields";
import { encode, toHex } from "./merkle";

export const KIT_PREFIX = "kit:";
export const NAMES_STREAM = "names:server";
const CASE_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const UUID = /^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/;

abstract class RegisterCheck extends StreamCheck {
  protected override keyOwner(): null {
    return null;
  }

  protected override nextDigestPoint(): null {
    return null;
  }

  protected override check(entry: Entry): void {
    takeMembers(entry.members, "the entry", `${ENVELOPE} actor`);
    expect(entry.outcome === null, "a register has no outcomes");
    this.checkMessage(entry);
  }

  protected abstract checkMessage(entry: Entry): void;
}

export class KitCheck extends RegisterCheck {
  protected override checkMessage(entry: Entry): void {
    expect(entry.verb === "PUT_KIT", "verb that is not defined", "PUT_KIT", entry.verb);
    const payload = takeMembers(entry.payload, "payload", "content_hash document hypotheses kit_id media_type probes title version");
    for (const name of ["kit_id", "version", "title"]) takeText(payload[name], `payload.${name}`);
    const document = takeText(payload["document"], "payload.document");
    expect(this.streamId === `${KIT_PREFIX}${String(payload["kit_id"])}`, "not the kit of its stream", this.streamId, payload["kit_id"]);
    expect(["application/yaml", "application/json"].includes(String(payload["media_type"])), "payload.media_type is no language of kits", "", payload["media_type"]);
    takeNumber(payload["hypotheses"], "payload.hypotheses");
    takeNumber(payload["probes"], "payload.probes");
    const hash = toHex(sha256(encode(`cmbs/1/kit\0${document}`)));
    expect(takeHash(payload["content_hash"], "payload.content_hash") === hash, "not the hash of the document", hash, payload["content_hash"]);
    this.occurOnce("content of the kit", hash, payload["media_type"]!);
  }
}

export class NamesCheck extends RegisterCheck {
  private readonly holders = new Map<string, string>();
  private readonly names = new Map<string, string>();

  protected override checkMessage(entry: Entry): void {
    const claims = entry.verb === "CLAIM_NAME";
    expect(claims || entry.verb === "RELEASE_NAME", "verb that is not defined", "", entry.verb);
    const payload = takeMembers(entry.payload, "payload", claims ? "instead_of name session_id" : "name session_id");
    const name = takeText(payload["name"], "payload.name");
    const session = takeText(payload["session_id"], "payload.session_id");
    expect(CASE_NAME.test(name) && !UUID.test(name), "not a name of a case", "", name);
    const givenUp = claims ? payload["instead_of"] : name;
    expect((this.names.get(session) ?? null) === givenUp && !(claims && name === givenUp), "not the name that the case has", this.names.get(session) ?? "none", givenUp);
    if (typeof givenUp === "string") this.giveUp(givenUp, session, entry.actor!);
    if (!claims) return;
    expect(!this.holders.has(name.toLowerCase()), "another case has the name", "", name);
    this.holders.set(name.toLowerCase(), session);
    this.names.set(session, name);
  }

  private giveUp(name: string, session: string, actor: Members): void {
    expect(actor["authenticated"] !== true || actor["kind"] === "operator", "a case was renamed by another than an operator");
    this.holders.delete(name.toLowerCase());
    this.names.delete(session);
  }
}
