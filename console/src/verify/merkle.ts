// Hashes as docs/reference/export.md has them: SHA-256, RFC 6962 trees, and the commitment to the survivors.

import { sha256 } from "@noble/hashes/sha2.js";

const BLOCK_BYTES = 128;
const BLOCK_BITS = 8 * BLOCK_BYTES;
const encoder = new TextEncoder();

export function encode(text: string): Uint8Array {
  return encoder.encode(text);
}

export function toHex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

export function fromHex(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length / 2);
  for (let at = 0; at < bytes.length; at++) bytes[at] = Number.parseInt(text.slice(2 * at, 2 * at + 2), 16);
  return bytes;
}

export function hashLeaf(data: Uint8Array): Uint8Array {
  const framed = new Uint8Array(data.length + 1);
  framed.set(data, 1);
  return sha256(framed);
}

const pair = new Uint8Array(65);

export function hashNode(left: Uint8Array, right: Uint8Array): Uint8Array {
  pair[0] = 1;
  pair.set(left, 1);
  pair.set(right, 33);
  return sha256(pair);
}

/** A tree whose leaves can change; only the paths above changed leaves are hashed again. */
export class MerkleTree {
  private readonly levels: Uint8Array[][];

  constructor(leaves: Uint8Array[]) {
    this.levels = [leaves];
    let below = leaves;
    while (below.length > 1) {
      const above: Uint8Array[] = [];
      for (let at = 0; at + 1 < below.length; at += 2) above.push(hashNode(below[at]!, below[at + 1]!));
      if (below.length % 2 === 1) above.push(below[below.length - 1]!);
      this.levels.push(above);
      below = above;
    }
  }

  root(): Uint8Array {
    return this.levels[this.levels.length - 1]![0]!;
  }

  update(changed: Map<number, Uint8Array>): void {
    let positions = new Set<number>();
    for (const [position, leaf] of changed) {
      this.levels[0]![position] = leaf;
      positions.add(position);
    }
    for (let level = 0; level + 1 < this.levels.length; level++) {
      const below = this.levels[level]!;
      const parents = new Set<number>();
      for (const position of positions) parents.add(position >> 1);
      for (const parent of parents) {
        const left = below[2 * parent]!;
        const right = below[2 * parent + 1];
        this.levels[level + 1]![parent] = right ? hashNode(left, right) : left;
      }
      positions = parents;
    }
  }
}

/** Which hypotheses survive, one bit each, and the root over the bits. */
export class Survivors {
  readonly bits: Uint8Array;
  count: number;
  private readonly tree: MerkleTree;

  constructor(readonly size: number) {
    const blocks = Math.ceil(size / BLOCK_BITS);
    this.bits = new Uint8Array(blocks * BLOCK_BYTES);
    for (let at = 0; at < size >> 3; at++) this.bits[at] = 0xff;
    for (let at = size & ~7; at < size; at++) this.bits[at >> 3]! |= 1 << (at & 7);
    this.count = size;
    this.tree = new MerkleTree(Array.from({ length: blocks }, (_, block) => hashLeaf(this.block(block))));
  }

  has(position: number): boolean {
    return (this.bits[position >> 3]! & (1 << (position & 7))) !== 0;
  }

  remove(positions: number[]): void {
    const blocks = new Set<number>();
    for (const position of positions) {
      if (!this.has(position)) continue;
      this.bits[position >> 3]! &= ~(1 << (position & 7));
      this.count -= 1;
      blocks.add(Math.floor(position / BLOCK_BITS));
    }
    this.tree.update(new Map([...blocks].map((block) => [block, hashLeaf(this.block(block))])));
  }

  root(): Uint8Array {
    return this.tree.root();
  }

  private block(at: number): Uint8Array {
    return this.bits.subarray(at * BLOCK_BYTES, (at + 1) * BLOCK_BYTES);
  }
}

/** What an entry says of the survivors: bound to its stream and to the entry before. */
export function commitTo(streamId: string, previous: string, root: Uint8Array): string {
  const parts = [encode("cmbs/survivors/v1"), encode(streamId), fromHex(previous), root];
  const framed = new Uint8Array(parts.reduce((sum, part) => sum + 4 + part.length, 0));
  const view = new DataView(framed.buffer);
  let at = 0;
  for (const part of parts) {
    view.setUint32(at, part.length);
    framed.set(part, at + 4);
    at += 4 + part.length;
  }
  return toHex(sha256(framed));
}
