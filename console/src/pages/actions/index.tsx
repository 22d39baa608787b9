// The actions of a case: gates, proposals with their traces, the inbox, state with history, and memory.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { countSurvivors } from "../../model/load";
import { count, plural } from "../../ui/format";
import { LiveChip, Page, lastSession } from "../../ui/frame";
import { useFresh } from "../../ui/fresh";
import { Icon } from "../../ui/icons";
import { joinNews, type News, useNews } from "../../ui/news";
import { Empty, Failure, Panel, Skeleton, useLoad } from "../../ui/parts";
import { Link, place, setQuery } from "../../ui/router";
import { Gates, nameOf, STATUS } from "./gates";
import { InboxPanel, countWaiting } from "./inbox";
import { type Case, findCases, listProposals, readInbox } from "./model";
import { StatePanel } from "./state";
import { Trace } from "./trace";

export function ActionsPage({ id, name }: { id: string; name: string }): JSX.Element {
  lastSession.value = id;
  const cases = useLoad(() => findCases(id), [id]);
  const reports = useNews({ session: id });
  const left = useLoad((signal) => countSurvivors(id, undefined, signal), [id, reports.count]);
  const chosen = cases.value?.find((each) => each.space === place.value.query.get("space")) ?? cases.value?.[0];
  const [news, setNews] = useState<News | null>(null);
  const following = chosen ? news && joinNews(news, reports) : reports;
  return (
    <Page
      title="Actions"
      crumbs={<><Link to="" class="f3 wide">Cases</Link><span class="f3 wide" aria-hidden="true">/</span><Link to={`cases/${encodeURIComponent(id)}`} class="mono f2 wide">{name === id ? id.slice(0, 8) : name}</Link></>}
      chips={left.value !== null && <span class="chip wide">{plural(left.value, "cause")} left</span>}
      status={cases.value && following && <LiveChip {...following} />}
    >
      {cases.error !== null && <Panel title="Actions"><Failure error={cases.error} retry={cases.again} /></Panel>}
      {cases.loading && !cases.value && <Panel><Skeleton height={300} /></Panel>}
      {cases.value && !chosen && (
        <Panel>
          <Empty title="This case is not admitted to a space">
            <p class="f2">An operator admits it; then calls can be gated on what is believed in it:</p>
            <pre class="args" tabIndex={0} aria-label="A command to copy">{`cmbs case open ${name} --space SPACE`}</pre>
          </Empty>
        </Panel>
      )}
      {chosen && <CaseActions key={`${chosen.space}/${chosen.case.case_id}`} space={chosen.space} one={chosen.case} reports={reports} said={setNews} />}
    </Page>
  );
}

/** `reports` are those of the case's session. */
function CaseActions({ space, one, reports, said }: { space: string; one: Case; reports: News; said: (news: News) => void }): JSX.Element {
  const news = useNews({ space });
  useEffect(() => said(news), [news.pulse]);
  const proposals = useLoad(async () => {
    const newestFirst = await listProposals(space, { case_id: one.case_id, order: "newest" }, 500);
    return newestFirst.reverse();
  }, [space, one.case_id, news.count]);
  const stale = joinNews(news, reports).pulse?.state === "stale";
  const inbox = useLoad(() => readInbox(space), [space, news.count]);
  useEffect(() => void countWaiting(), [inbox.value]);
  const newest = useMemo(() => [...(proposals.value ?? [])].reverse(), [proposals.value]);
  const listed = useFresh(newest, (each) => each.proposal_id);
  // What is read stays, whatever is proposed meanwhile.
  const kept = useRef<string | null>(null);
  const asked = place.value.query.get("proposal") ?? kept.current;
  const chosen = newest.find((each) => each.proposal_id === asked) ?? newest.find((each) => each.status === "parked") ?? newest[0];
  kept.current = chosen?.proposal_id ?? null;
  const changed = (): void => {
    proposals.again();
    inbox.again();
  };
  return (
    <div class="al">
      <div>
        <Gates space={space} proposals={proposals.value ?? []} />
        <Panel title="Proposals" note={`${count(newest.length)} in this case`}>
          {proposals.error !== null && <Failure error={proposals.error} retry={proposals.again} />}
          {newest.length === 0 && !proposals.loading && <p class="note pad">No proposal yet.</p>}
          {listed.chip}
          <ul class="props">
            {listed.shown.slice(0, 100).map((each) => {
              const [icon, tone] = STATUS[each.status] ?? ["wait", ""];
              return (
                <li key={each.proposal_id} class={each === chosen ? "chosen" : ""}>
                  <Icon of={icon} tone={tone} label={each.status} />
                  <button type="button" class="link mono clip" aria-pressed={each === chosen} onClick={() => setQuery({ proposal: each.proposal_id })}>{nameOf(each)}</button>
                  <span class="f3 num">{each.status} #{each.seq}</span>
                </li>
              );
            })}
          </ul>
        </Panel>
      </div>
      <div>
        {chosen ? <Trace key={chosen.proposal_id} space={space} proposal={chosen} stale={stale} changed={changed} /> : <Panel title="Proposal">{proposals.loading ? <Skeleton height={300} /> : <p class="note pad">Nothing was proposed yet.</p>}</Panel>}
        <StatePanel space={space} news={news.count} />
      </div>
      <div>
        {inbox.error !== null ? <Panel title="Waits for you"><Failure error={inbox.error} retry={inbox.again} /></Panel> : <InboxPanel items={inbox.value ?? []} stale={stale} changed={changed} belief={reports.count} />}
      </div>
    </div>
  );
}
