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
        <Cards stale={stale}><ChangeCard space={space} change={change} changed={settled} review={false} /></Cards>
      ) : (
        <p class="note pad">{pending ? "You proposed it: another operator puts it in force." : `It waits no more: ${change.status}.`}</p>
      )}
      {change.reason && <p class="pad">{change.reason}</p>}
      {change.source === null && pending && <Keys change={change} />}
    </Panel>
  );
}

/** What a change without a file sets and takes away. */
function Keys({ change }: { change: PolicyChange }): JSX.Element {
  return (
    <ul class="changes pad">
      {Object.entries(change.set).map(([key, value]) => <li key={key}><span class="mono wrap">{key}</span><span class="mono wrap ins">+ {value}</span></li>)}
      {change.unset.map((key) => <li key={key}><span class="mono wrap">{key}</span><span class="mono del">− taken away</span></li>)}
    </ul>
  );
}
