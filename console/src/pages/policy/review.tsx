// A change of policy that waits for a second operator, before the file that it would put in force.

import type { JSX } from "preact";
import { identity } from "../../api/client";
import { Panel } from "../../ui/parts";
import { Cards, ChangeCard } from "../actions/inbox";
import type { PolicyChange } from "../actions/model";

export function Review({ space, change, stale, settled }: { space: string; change: PolicyChange; stale: boolean; settled: () => void }): JSX.Element {
  const pending = change.status === "pending";
  const own = change.proposer.id === identity.value?.id;
  return (
    <Panel title="A change to review">
      {pending && !own ? (
        <Cards stale={stale}><ChangeCard space={space} change={change} changed={settled} whole /></Cards>
      ) : (
        <p class="note pad">{pending ? "You proposed it: another operator puts it in force." : `It waits no more: it is ${change.status}${change.settled_by === null ? "" : `, by ${change.settled_by.id}`}.`}</p>
      )}
    </Panel>
  );
}
