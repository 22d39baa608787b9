// The actions of a case: gates, proposals with their traces, the inbox, state with history, and memory.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { may } from "../../api/client";
import { countSurvivors } from "../../model/load";
import { count, plural } from "../../ui/format";
import { LiveChip, Page, lastSession } from "../../ui/frame";
import { Exact } from "../../ui/exact";
import { useFresh } from "../../ui/fresh";
import { Icon } from "../../ui/icons";
import { joinNews, useNews } from "../../ui/news";
import { Empty, Failure, Panel, Skeleton, useLoad } from "../../ui/parts";
import { Link, place, setQuery } from "../../ui/router";
import { Gates, nameOf, STATUS } from "./gates";
import { InboxPanel, noteWaiting } from "./inbox";
import { EVERY_SPACE, findSpacesOf, listProposals, readInbox } from "./model";
import { StatePanel } from "./state";
import { Trace } from "./trace";

export function ActionsPage({ id, name }: { id: string; name: string }): JSX.Element {
  lastSession.value = id;
  const mayLook = may("spaces:read");
  const spaces = useLoad(() => (mayLook ? findSpacesOf(id) : Promise.resolve([])), [id]);
  const reports = useNews({ session: id });
  const everywhere = useNews(mayLook ? EVERY_SPACE : null);
  const left = useLoad((signal) => countSurvivors(id, undefined, signal), [id, reports.count]);
  const inbox = useLoad(() => readInbox(), [id, everywhere.count]);
  useEffect(() => {
    if (inbox.value) noteWaiting(inbox.value);
  }, [inbox.value]);
  const asked = place.value.query.get("space");
  const chosen = asked ?? spaces.value?.[0];
  const isUnknown = asked !== null && spaces.value !== null && !spaces.value.includes(asked);
  const live = joinNews(everywhere, reports);
  const stale = live.pulse?.state === "stale";
  // Of this case alone, whichever spaces it was admitted to.
  const own = useMemo(() => inbox.value?.filter((each) => each.case_id === id) ?? null, [inbox.value, id]);
  const aside = inbox.error !== null ? <Panel title="Waits for you"><Failure error={inbox.error} retry={inbox.again} /></Panel> : <InboxPanel items={own} stale={stale} changed={inbox.again} belief={reports.count} news={everywhere.count} />;
  return (
    <Page
      title="Actions"
      crumbs={<><Link to="" class="f3 wide">Cases</Link><span class="f3 wide" aria-hidden="true">/</span><Link to={`cases/${encodeURIComponent(id)}`} class="mono f2 wide clip">{name === id ? id.slice(0, 8) : name}</Link></>}
      chips={<>
        {left.value !== null && <span class="chip wide">{plural(left.value, "cause")} left</span>}
        {(spaces.value?.length ?? 0) > 1 && <label class="row"><span class="f3 wide">space</span><select class="field" aria-label="Space" value={chosen} onChange={(event) => setQuery({ space: event.currentTarget.value, proposal: null })}>{spaces.value!.map((each) => <option key={each} value={each}>{each}</option>)}</select></label>}
      </>}
      status={spaces.value && <LiveChip {...live} />}
    >
      {!mayLook && <Panel title="Actions"><Empty title="This key may not look into spaces"><p class="f2">Sign in with a key that has the scope <code>spaces:read</code>.</p></Empty></Panel>}
      {spaces.error !== null && <Panel title="Actions"><Failure error={spaces.error} retry={spaces.again} /></Panel>}
      {spaces.loading && !spaces.value && <Panel><Skeleton height={300} /></Panel>}
      {isUnknown && (
        <Panel title="No such space">
          <Empty title="This case is not admitted to the space that the address names">
            <p class="f2 wrap">The address names <code>{asked}</code>. <button type="button" class="btn" onClick={() => setQuery({ space: null })}>Show the case without it</button></p>
          </Empty>
        </Panel>
      )}
      {mayLook && spaces.value && chosen === undefined && (
        <Panel>
          <Empty title="This case is not admitted to a space">
            <p class="f2">An operator admits it; then calls can be gated on what is believed in it:</p>
            <pre class="args" tabIndex={0} aria-label="A command to copy">{`cmbs case open ${name} --space SPACE`}</pre>
          </Empty>
        </Panel>
      )}
      {spaces.value && chosen !== undefined && !isUnknown && <CaseActions key={chosen} space={chosen} id={id} news={everywhere.count} stale={stale} changed={inbox.again} aside={aside} belief={reports.count} />}
    </Page>
  );
}

function CaseActions({ space, id, news, belief, stale, changed, aside }: { space: string; id: string; news: number; belief: number; stale: boolean; changed: () => void; aside: JSX.Element }): JSX.Element {
  const proposals = useLoad(async () => {
    const newestFirst = await listProposals(space, { case_id: id, order: "newest" }, 500);
    return newestFirst.reverse();
  }, [space, id, news]);
  const newest = useMemo(() => [...(proposals.value ?? [])].reverse(), [proposals.value]);
  const listed = useFresh(newest, (each) => each.proposal_id);
  // What is read stays, whatever is proposed meanwhile.
  const kept = useRef<string | null>(null);
  const named = place.value.query.get("proposal");
  const asked = named ?? kept.current;
  const found = newest.find((each) => each.proposal_id === asked);
  const isUnknown = named !== null && found === undefined && proposals.value !== null;
  const chosen = isUnknown ? undefined : (found ?? newest.find((each) => each.status === "parked") ?? newest[0]);
  kept.current = chosen?.proposal_id ?? null;
  const settled = (): void => {
    proposals.again();
    changed();
  };
  return (
    <div class="al">
      <div>
        <Gates space={space} proposals={proposals.value ?? []} news={news} belief={belief} />
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
                  <button type="button" class="link mono clip" aria-pressed={each === chosen} onClick={() => setQuery({ proposal: each.proposal_id })}><Exact text={nameOf(each)} /></button>
                  <span class="f3 num">{each.status} #{each.seq}</span>
                </li>
              );
            })}
          </ul>
        </Panel>
      </div>
      <div>
        {isUnknown && (
          <Panel title="No such proposal">
            <Empty title="This case has no proposal of this id in this space">
              <p class="f2 wrap">The address names <code>{named}</code>. <button type="button" class="btn" onClick={() => setQuery({ proposal: null })}>Show the newest</button></p>
            </Empty>
          </Panel>
        )}
        {chosen && <Trace key={chosen.proposal_id} space={space} proposal={chosen} stale={stale} changed={settled} />}
        {!chosen && !isUnknown && <Panel title="Proposal">{proposals.loading ? <Skeleton height={300} /> : <p class="note pad">Nothing was proposed yet.</p>}</Panel>}
        <StatePanel space={space} news={news} />
      </div>
      <div>{aside}</div>
    </div>
  );
}
