// A room is what is known of one topic: a snapshot, and pushes that change it.
// Rooms are pure; channels hold their state.
export interface Room<S> {
  readonly initial: S;
  /** The state after a snapshot; old is what was known before. */
  snapshot(old: S, data: unknown): S;
  /** The state after some pushes in their order. */
  pushes(old: S, pushes: readonly { action: string; data: unknown }[]): S;
}

export type Phase = "loading" | "live" | "stale" | "failed";

export interface View<S> {
  readonly phase: Phase;
  readonly state: S;
  readonly code: string;
  readonly error: string;
}
