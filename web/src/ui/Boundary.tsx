import type { ReactNode } from "react";
import { Component } from "react";
import { Empty } from "./Empty";
import { Button } from "./Button";

interface Props {
  /** What is shown; something else gets another chance. */
  of: string;
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
    return (
      <Empty title="This view cannot be shown">
        <p className="wrap">{this.state.failed}</p>
        <p>The daemon may have been updated since the page was loaded.</p>
        <Button kind="primary" onClick={() => location.reload()}>
          Load the page again
        </Button>
      </Empty>
    );
  }
}
