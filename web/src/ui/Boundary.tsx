import type { ReactNode } from "react";
import { Component, useEffect, useRef } from "react";
import { useStatus } from "../page";
import { Button } from "./Button";
import { Empty } from "./Empty";

interface Props {
  /** What is shown; something else gets another chance. */
  of: string;
  /** Loads the page again; a test has its own. */
  reload?: () => void;
  children: ReactNode;
}

/** Keeps a view that fails from taking the rest of the page with it. */
export class Boundary extends Component<Props, { failed: string | null }> {
  override state = { failed: null };

  static getDerivedStateFromError(e: unknown): { failed: string } {
    return { failed: e instanceof Error ? e.message : String(e) };
  }

  override componentDidUpdate(before: Props): void {
    if (before.of !== this.props.of && this.state.failed !== null) this.setState({ failed: null });
  }

  override render(): ReactNode {
    if (this.state.failed === null) return this.props.children;
    return <Failed why={this.state.failed} reload={this.props.reload ?? (() => location.reload())} />;
  }
}

/**
 * What stands in place of a view that failed. While the daemon is away there is nothing
 * to load the page from: it waits for the daemon, and then loads itself. A part of the
 * page that could not be fetched is not fetched again otherwise.
 */
function Failed({ why, reload }: { why: string; reload: () => void }) {
  // Only after it was there: a page that has just been loaded connects, and would load
  // itself again without end if what failed fails each time.
  const away = useStatus() === "reconnecting";
  const waited = useRef(false);
  useEffect(() => {
    if (away) waited.current = true;
    else if (waited.current) reload();
  }, [away, reload]);
  if (away) {
    return (
      <Empty whole title="The daemon is away">
        <div role="status">
          <p>This part of the page was not loaded before, and cannot be now. It appears by itself as soon as the daemon is back.</p>
          <p>
            Is <code>ossicle serve</code> running?
          </p>
        </div>
      </Empty>
    );
  }
  return (
    <Empty whole title="This view cannot be shown">
      <div role="alert">
        <p className="wrap">{why}</p>
        <p>The daemon may have been updated since the page was loaded.</p>
      </div>
      <Button kind="primary" onClick={reload}>
        Load the page again
      </Button>
    </Empty>
  );
}
