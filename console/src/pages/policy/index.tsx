// The policy workbench: the file with errors in place, lint, its tests, an explained call, and which past decisions would flip.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { AS_YAML, api, mayOperate, read } from "../../api/client";
import { plural, short } from "../../ui/format";
import { LiveChip, Page } from "../../ui/frame";
import { Icon } from "../../ui/icons";
import { useNews } from "../../ui/news";
import { Empty, Failure, Message, Panel, Skeleton, ToCopy, useLoad } from "../../ui/parts";
import { go } from "../../ui/router";
import { type PolicySource, listSpaces, readPolicyChange, readPolicySource } from "../actions/model";
import { mountEditor, type Editor } from "./editor";
import { ExplainPanel } from "./explain";
import { Flips } from "./flips";
import { Review } from "./review";

const QUIET_MS = 400;
const CREATE_SPACE = `cmbs api create_space space_id=ops --actor operator:me --server ${new URL(".", document.baseURI).href.replace(/\/$/, "")}`;

/** `change` is the id of a change that waits for a second operator: its file is the draft. */
export function PolicyPage({ space, change }: { space: string | undefined; change: string | undefined }): JSX.Element {
  const spaces = useLoad(listSpaces, []);
  const chosen = space ?? spaces.value?.find((each) => each !== "default") ?? spaces.value?.[0];
  const policy = useLoad(async () => (chosen ? readPolicySource(chosen) : null), [chosen]);
  const reviewed = useLoad(async () => (chosen && change ? readPolicyChange(chosen, change) : null), [chosen, change]);
  const news = useNews(chosen && mayOperate(chosen) ? { space: chosen } : null);
  const newest = useLoad(async () => (chosen && policy.value && news.count > 0 ? readPolicySource(chosen) : null), [chosen, news.count]);
  const isOld = policy.value !== null && newest.value !== null && newest.value.policy_hash !== policy.value.policy_hash;
  const problem = spaces.error ?? policy.error ?? reviewed.error;
  const stale = news.pulse?.state === "stale";
  const settled = (): void => {
    policy.again();
    reviewed.again();
  };
  return (
    <Page
      title="Policy"
      crumbs={
        spaces.value?.length !== 0 && <label class="row"><span class="f3 wide">space</span>
          <select class="field" aria-label="Space" value={chosen ?? ""} onChange={(event) => go(`spaces/${encodeURIComponent(event.currentTarget.value)}/policy`)}>
            {spaces.value?.map((each) => <option key={each} value={each}>{each}</option>)}
          </select>
        </label>
      }
      chips={policy.value && <span class="chip wide">in force: <span class="mono">{short(policy.value.policy_hash)}</span></span>}
      status={<LiveChip pulse={news.pulse} retry={news.retry} />}
    >
      {problem !== null && <Panel title="Policy"><Failure error={problem} retry={() => { policy.again(); reviewed.again(); }} /></Panel>}
      {isOld && <div class="panel replay" role="status"><Icon of="warn" tone="owed" /><span class="grow">Another policy was put in force meanwhile. What is written here is checked against the one before it.</span><button type="button" class="btn" onClick={policy.again}>Load it, and drop the draft</button></div>}
      {!policy.value && problem === null && spaces.value?.length !== 0 && <Panel><Skeleton height={400} /></Panel>}
      {spaces.value?.length === 0 && <Panel><Empty title="No space yet"><p class="f2">A policy belongs to a space. A gateway makes one for its calls, and an operator makes one with:</p><ToCopy text={CREATE_SPACE} /></Empty></Panel>}
      {chosen && reviewed.value && <Review space={chosen} change={reviewed.value} stale={stale} settled={settled} />}
      {chosen && policy.value && (!change || reviewed.value) && <Workbench key={`${chosen}${policy.value.policy_hash}`} space={chosen} policy={policy.value} proposal={reviewed.value?.source?.text ?? null} stale={stale} again={policy.again} />}
    </Page>
  );
}

const EMPTY_FILE = "format: 2\nrules: []\n";

function Workbench({ space, policy, proposal, stale, again }: { space: string; policy: PolicySource; proposal: string | null; stale: boolean; again: () => void }): JSX.Element {
  const inForce = policy.source?.text ?? EMPTY_FILE;
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const [text, setText] = useState(proposal ?? inForce);
  const [quiet, setQuiet] = useState(proposal ?? inForce);
  const [error, setError] = useState<unknown>(null);
  const [compared, setCompared] = useState(proposal !== null);
  const [proposed, setProposed] = useState<string | null>(null);
  useEffect(() => {
    editor.current = mountEditor(host.current!, inForce, setText, "The policy file");
    if (proposal !== null) {
      editor.current.replace(proposal);
      editor.current.compare(true);
    }
    return () => editor.current?.destroy();
  }, []);
  useEffect(() => {
    const timer = setTimeout(() => setQuiet(text), QUIET_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const path = { space_id: space };
  // Drafts are an operator's: another key sees the file, and how calls are decided by it.
  const operates = mayOperate(space);
  const check = useLoad(async () => {
    if (!operates) return null;
    return read(api.POST("/v1/spaces/{space_id}/policy/check", { params: { path }, body: quiet, ...AS_YAML }));
  }, [space, quiet, operates]);
  useEffect(() => {
    if (check.value) editor.current?.show(check.value.findings);
  }, [check.value]);
  const errors = check.value?.findings.filter((each) => each.severity === "error") ?? [];
  const warnings = check.value?.findings.filter((each) => each.severity === "warning") ?? [];
  const { tests = [], never_asked: neverAsked = [] } = check.value ?? {};
  const changed = text !== inForce;
  const keys = (check.value?.set?.length ?? 0) + (check.value?.unset?.length ?? 0);
  const compare = (on: boolean): void => {
    editor.current?.compare(on);
    setCompared(on);
  };
  const propose = async (): Promise<void> => {
    try {
      const params = { path, query: { base_policy_hash: policy.policy_hash } };
      const { status } = await read(api.PUT("/v1/spaces/{space_id}/policy", { params, body: text, ...AS_YAML }));
      setProposed(status === "applied" ? "It is in force." : "It waits for a second operator.");
      again();
    } catch (problem) {
      setError(problem);
    }
  };
  return (
    <div class="workbench">
      <div>
        <Panel
          title="Policy file"
          note={<span class="row">
            <span class="tabs" role="group" aria-label="How the file is shown">
              <button type="button" aria-pressed={!compared} onClick={() => compare(false)}>File</button>
              <button type="button" aria-pressed={compared} onClick={() => compare(true)}>Diff</button>
            </span>
            {policy.source === null ? "no file is on record; the policy was written by its keys" : changed ? (errors.length > 0 ? "draft" : `draft, ${plural(keys, "rule or setting", "rules or settings")} changed`) : "as in force"}
          </span>}
          actions={operates && <span class="row" role="status">{check.loading ? <span class="f3">checking</span> : <>{errors.length > 0 && <span class="refused"><Icon of="refused" /> {plural(errors.length, "error")}</span>}{warnings.length > 0 && <span class="owed"><Icon of="warn" /> {plural(warnings.length, "warning")}</span>}{errors.length + warnings.length === 0 && <span class="holds"><Icon of="check" /> sound</span>}</>}</span>}
        >
          <div ref={host} class="editor" data-testid="editor" />
          {operates && <div class="pad row foot">
            <span class="f2 grow">{proposed ?? "It takes effect when the space's rule on operators is met."}</span>
            {error !== null && <Failure error={error} />}
            <button type="button" class="btn ghost" disabled={!changed} onClick={() => editor.current?.replace(inForce)}>Discard</button>
            {text !== proposal && <button type="button" class="btn primary" disabled={stale || !changed || errors.length > 0 || check.loading} onClick={() => void propose()}>{errors.length > 0 ? `Propose change: fix ${plural(errors.length, "error")} first` : "Propose change"}</button>}
          </div>}
        </Panel>
        {operates && <Panel title="Findings" note={check.value ? plural(check.value.findings.length, "finding") : ""}>
          {check.error !== null && <Failure error={check.error} retry={check.again} />}
          {check.value === null && check.loading && <Skeleton height={30} />}
          {check.value?.findings.length === 0 && <p class="note pad">Nothing was found.</p>}
          <ul class="facts">
            {check.value?.findings.map((each, n) => (
              <li key={n} class="finding">
                <Icon of={each.severity === "error" ? "refused" : each.severity === "warning" ? "warn" : "next"} tone={each.severity === "error" ? "refused" : each.severity === "warning" ? "owed" : "f3"} label={each.severity} />
                <button type="button" class="link mono num" disabled={!each.line} onClick={() => each.line && editor.current?.goTo(each.line, each.column ?? 1)}>{each.line ? `${each.line}:${each.column ?? 1}` : ""}</button>
                <span class="wrap"><b>{each.rule}</b> <Message text={each.message} /></span>
              </li>
            ))}
          </ul>
        </Panel>}
      </div>
      <div>
        {operates && <Flips space={space} text={quiet} ready={changed && check.value !== null && errors.length === 0} />}
        {operates && <Panel title="Tests" note={check.value && errors.length === 0 ? `${tests.filter((each) => each.passed).length} of ${tests.length} pass${neverAsked.length > 0 ? `; ${plural(neverAsked.length, "rule")} never asked` : ""}` : ""}>
          {check.value === null && check.loading && <Skeleton height={60} />}
          {check.value && tests.length === 0 && <p class="note pad">{errors.length > 0 ? "They run once the file has no error." : "The file has no tests."}</p>}
          <ul class="facts">
            {tests.map((each) => (
              <li key={each.name} class="finding two-cols">
                <Icon of={each.passed ? "check" : "cross"} tone={each.passed ? "holds" : "refused"} label={each.passed ? "passes" : "fails"} />
                <span>{each.name}</span>
                <span class={each.passed ? "f3" : "refused"}>{each.mismatches.map((one) => `${one.at}: expected ${String(one.expected)}, got ${String(one.found)}`).join("; ")}</span>
              </li>
            ))}
          </ul>
        </Panel>}
        <ExplainPanel space={space} policy={policy} />
      </div>
    </div>
  );
}
