// Numbers, times and hashes as people read them.

const NUMBERS = new Intl.NumberFormat("en-US");

export function count(value: number): string {
  return NUMBERS.format(value);
}

export function bits(value: number): string {
  return value.toFixed(2);
}

export function clock(milliseconds: number): string {
  return new Date(milliseconds).toLocaleTimeString("en-GB", { hour12: false });
}

export function day(milliseconds: number): string {
  return new Date(milliseconds).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

/** How long, in the two largest units that matter. */
export function span(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return minutes < 10 && seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days`;
}

export function ago(milliseconds: number, now: number): string {
  const past = now - milliseconds;
  if (past < 3000) return "now";
  return past < 86_400_000 ? `${span(past)} ago` : `${day(milliseconds)}, ${clock(milliseconds).slice(0, 5)}`;
}

export function short(hash: string): string {
  return hash.length > 12 ? `${hash.slice(0, 4)}…${hash.slice(-4)}` : hash;
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** What a session in a list is called: its title, or else what it is about. */
export function nameSession(session: { title: string | null; kit: string | null }): string {
  return session.title ?? (session.kit === null ? "Untitled session" : `${session.kit} session`);
}

/** A message of the server in pieces: every second one stood between backticks, and is code. */
export function splitCode(message: string): string[] {
  const pieces = message.split("`");
  return pieces.length % 2 === 1 ? pieces : [message];
}

export function show(value: unknown): string {
  if (Array.isArray(value)) return value.map(show).join(", ");
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A document in words: a lone member by its value, several by their names. */
export function showMembers(value: unknown): string {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return show(value);
  const members = Object.entries(value);
  if (members.length === 1) return show(members[0]![1]);
  return members.map(([name, each]) => `${name}: ${show(each)}`).join(", ");
}

/** A text whose long dotted names may be broken after a dot or an underscore, and nowhere else. */
export function breakNames(text: string): string {
  return text.replaceAll(/(?<=\w)[._](?=\w)/g, "$&\u200b");
}
