// What the daemon says, as it says it. Members that Go leaves out when they are
// empty are optional here, and a nil list is null. Nothing here is trusted to be
// complete: a newer daemon may say more, and words that are not known are shown
// as they are.

export type Json = unknown;
export type Maybe<T> = T | null | undefined;

export interface Profile {
  name: string;
  engine: string;
  agent?: string;
  dir?: string;
  servers?: Maybe<string[]>;
  sandbox?: string;
}

/** A kind of sandbox that the daemon can start. */
export interface SandboxProfile {
  name: string;
  driver: string;
  tier?: string;
}

export interface PageInfo {
  version?: string;
  principal?: { name: string; all: boolean };
  features?: { feed?: boolean; signals?: boolean; sandboxes?: boolean };
  profiles?: Maybe<Profile[]>;
  sandbox_profiles?: Maybe<SandboxProfile[]>;
}

export interface Meta {
  id: string;
  profile?: string;
  dir?: string;
  agent?: string;
  conversation?: string;
  created_at: string;
  updated_at: string;
}

export interface Injected {
  server: string;
  transport: string;
  reason?: string;
}

export interface AgentInfo {
  name?: string;
  version?: string;
  protocol?: string;
  conversation?: string;
  injected?: Maybe<Injected[]>;
}

export interface WatchStatus {
  name: string;
  uri: string;
  shape?: string;
  events: number;
  notices: number;
  restore_failed?: boolean;
  failed?: boolean;
  error?: string;
}

export interface PermissionOption {
  id: string;
  name?: string;
  kind: string;
}

export interface ToolCall {
  id: string;
  title?: string;
  kind?: string;
  status?: string;
  input?: Json;
  output?: Json;
}

export interface Question {
  id: string;
  run?: string;
  call: ToolCall;
  options: Maybe<PermissionOption[]>;
  until?: string;
}

/** What is wrong with a session, in words that are safe to show. */
export interface Trouble {
  kind: string;
  text: string;
  since?: string;
}

export interface SessionInfo {
  meta: Meta;
  state: string;
  /** When the state began, of one that does not last. */
  since?: string;
  trouble?: Maybe<Trouble>;
  run?: string;
  inputs: number;
  notices: number;
  held?: boolean;
  questions?: number;
  agent?: AgentInfo;
  running: boolean;
  engine?: string;
  watching?: number;
  watches?: Maybe<WatchStatus[]>;
  asked?: Maybe<readonly Question[]>;
  inbox?: Maybe<InboxStatus>;
}

export interface Entry {
  seq: number;
  time: string;
  kind: string;
  run?: string;
  id?: string;
  text?: string;
  from?: string;
  channel?: string;
  operation?: string;
  task_id?: string;
  description?: string;
  note?: string;
  title?: string;
  status?: string;
  input?: Json;
  output?: Json;
  inputs?: Maybe<string[]>;
  notices?: Maybe<string[]>;
  delivered?: boolean;
  suppressed?: boolean;
  error?: string;
  cause?: string;
}

export interface PlanEntry {
  content: string;
  priority?: string;
  status?: string;
}

export interface Usage {
  input_tokens?: number;
  output_tokens?: number;
  context_used?: number;
  context_size?: number;
}

export interface Update {
  time: string;
  stream?: string;
  event: string;
  session?: string;
  run?: string;
  id?: string;
  source?: string;
  name?: string;
  uri?: string;
  from?: string;
  text?: string;
  reason?: string;
  error?: string;
  kind?: string;
  status?: string;
  input?: Json;
  output?: Json;
  options?: Maybe<PermissionOption[]>;
  plan?: Maybe<PlanEntry[]>;
  usage?: Usage;
  out_of_turn?: boolean;
}

export interface Notice {
  id: string;
  agent: string;
  source: string;
  title?: string;
  text: string;
  meta?: Maybe<Record<string, string>>;
  created_at: string;
  depth?: number;
  state: string;
  state_at: string;
  offers: number;
  due?: string;
  delivery?: string;
  steps?: Maybe<NoticeStep[]>;
}

export interface NoticeStep {
  state: string;
  at: string;
  adapter?: string;
  reason?: string;
}

export interface InboxStatus {
  agent: string;
  counts?: Maybe<Record<string, number>>;
  pending: number;
  hold?: Maybe<{ reason: string; at: string }>;
  outstanding?: string;
  until?: string;
  spent?: { wakes_minute: number; wakes_hour: number; tokens_hour: number };
}

export interface Member {
  id: string;
  harness?: string;
  substrate?: string;
  status: string;
  registered_at: string;
  last_seen: string;
}

export interface Signal {
  id: string;
  sequence: number;
  time: string;
  sender: string;
  recipient: string;
  type: string;
  priority?: string;
  content: string;
  reply_to?: string;
  metadata?: Json;
  depth?: number;
  read_by?: Maybe<string[]>;
}

export interface BoardEntry {
  key: string;
  value: string;
  updated_by: string;
  updated_at: string;
}

export interface Collaboration {
  agents?: Maybe<Member[]>;
  signals?: Maybe<Signal[]>;
  whiteboard?: Maybe<BoardEntry[]>;
}

export interface Resource {
  uri: string;
  name?: string;
  description?: string;
}

export interface ServerResources {
  name: string;
  state?: string;
  error?: string;
  resources?: Maybe<Resource[]>;
  templates?: Maybe<{ uri_template: string; name?: string; description?: string }[]>;
}

export interface DryRun {
  ok: boolean;
  problem?: string;
  lines?: Maybe<{ event: Json; line: string | null; error?: string; now?: boolean }[]>;
}

export interface Topic {
  name: string;
  count: number;
  bytes: number;
  first?: number;
  last?: number;
  oldest?: string;
}
