// One case by its id or its name: what it says of itself, for the pages about it.

import type { JSX } from "preact";
import { type Schemas, api, read } from "../api/client";
import { hasStatus } from "../api/errors";
import { Page } from "../ui/frame";
import { Failure, Panel, Skeleton, useLoad } from "../ui/parts";
import { Link } from "../ui/router";

export type CaseAbout = Schemas["SessionCase"];

/** Severity, owner and labels, as they are shown beside a title. */
export function listAbout(about: CaseAbout): string[] {
  const labels = Object.entries(about.labels).map(([name, value]) => `${name}:${value}`);
  const owner = about.owner === null ? null : `owner ${about.owner}`;
  return [about.severity, owner, ...labels].filter((each): each is string => each !== null);
}

/** A page about the case that the address names; where there is none of that name, it says so. */
export function OneCase({ named, children }: { named: string; children: (about: CaseAbout) => JSX.Element }): JSX.Element {
  const found = useLoad(
    (signal) => read(api.GET("/v1/sessions/{session_id}/case", { params: { path: { session_id: named } }, signal })),
    [named],
  );
  if (found.value) return children(found.value);
  const isUnknown = found.error !== null && hasStatus(found.error, 404);
  return (
    <Page title={isUnknown ? "No such case" : named}>
      {found.error === null ? <Panel><Skeleton height={104} /></Panel> : (
        <Panel title={isUnknown ? "No such case" : "This session cannot be shown"}>
          <Failure error={found.error} retry={found.again} />
          {isUnknown && <p class="pad">No case has this name or id. It may have been renamed.</p>}
          <p class="pad"><Link to="" class="under">All cases</Link></p>
        </Panel>
      )}
    </Page>
  );
}
