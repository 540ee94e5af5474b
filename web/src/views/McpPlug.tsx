import { Popover } from "radix-ui";
import { useEffect, useId, useRef, useState } from "react";
import { Drawer } from "vaul";
import type { View } from "../live/room";
import type { SessionState } from "../live/session";
import { IconButton } from "../ui/Button";
import { touchQuery, useMedia } from "../ui/useMedia";
import type { EndpointTests } from "./EndpointTest";
import { useEndpointTests } from "./EndpointTest";
import { McpPanel } from "./McpPanel";

interface Props {
  id: string;
  view: View<SessionState>;
  onReset?: () => void;
}

/** The plug: one button, neutral in every state, behind which stands what is known of the agent's MCP servers. */
export function McpPlug(props: Props) {
  const tests = useEndpointTests(props.id);
  return useMedia(touchQuery) ? <PlugDrawer {...props} tests={tests} /> : <PlugPopover {...props} tests={tests} />;
}

const label = "MCP servers of this session";

type Inner = Props & { tests: EndpointTests };

// peek: for the time being, by hover or focus; pinned: by a click, until it is closed.
type Shown = "no" | "peek" | "pinned";

const leaving = 250;

function PlugPopover({ id, view, tests, onReset }: Inner) {
  const [shown, setShown] = useState<Shown>("no");
  const button = useRef<HTMLButtonElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  // Focus that comes back to the button by a close must not open it again.
  const returning = useRef(false);
  const panelId = useId();
  useEffect(() => () => clearTimeout(timer.current), []);

  const peek = (): void => {
    clearTimeout(timer.current);
    setShown((s) => (s === "no" ? "peek" : s));
  };
  const inside = (n: EventTarget | null): boolean => n instanceof Node && (button.current?.contains(n) === true || content.current?.contains(n) === true);
  const leave = (): void => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setShown((s) => (s === "peek" && !inside(document.activeElement) ? "no" : s)), leaving);
  };
  const close = (focus: boolean): void => {
    clearTimeout(timer.current);
    setShown("no");
    if (!focus) return;
    returning.current = true;
    button.current?.focus();
    returning.current = false;
  };
  const blurred = (to: EventTarget | null): void => {
    if (to !== null && !inside(to)) setShown((s) => (s === "peek" ? "no" : s));
  };

  return (
    <Popover.Root open={shown !== "no"} onOpenChange={(o) => !o && close(false)}>
      <Popover.Anchor asChild>
        <IconButton
          ref={button}
          icon="plug"
          label={label}
          className="plug-button"
          aria-haspopup="dialog"
          aria-expanded={shown !== "no"}
          aria-controls={shown === "no" ? undefined : panelId}
          onPointerEnter={(e) => e.pointerType === "mouse" && peek()}
          onPointerLeave={(e) => e.pointerType === "mouse" && leave()}
          onFocus={() => !returning.current && button.current?.matches(":focus-visible") && peek()}
          onBlur={(e) => blurred(e.relatedTarget)}
          onClick={() => {
            clearTimeout(timer.current);
            setShown((s) => (s === "pinned" ? "no" : "pinned"));
          }}
        />
      </Popover.Anchor>
      {/* Not moved to the end of the page: the Tab key then goes on from the button into it. */}
      <Popover.Content
        id={panelId}
        ref={content}
        className="plug-popover"
        aria-label={label}
        align="end"
        sideOffset={6}
        collisionPadding={12}
        data-pinned={shown === "pinned" || undefined}
        onOpenAutoFocus={(e) => e.preventDefault()}
        onCloseAutoFocus={(e) => e.preventDefault()}
        onEscapeKeyDown={(e) => {
          e.preventDefault();
          close(true);
        }}
        onPointerDownOutside={(e) => inside(e.detail.originalEvent.target) && e.preventDefault()}
        onFocusOutside={(e) => e.preventDefault()}
        onPointerEnter={() => clearTimeout(timer.current)}
        onPointerLeave={(e) => e.pointerType === "mouse" && leave()}
        onBlur={(e) => blurred(e.relatedTarget)}
      >
        <McpPanel id={id} view={view} tests={tests} onReset={onReset} onLeave={() => close(false)} />
      </Popover.Content>
    </Popover.Root>
  );
}

function PlugDrawer({ id, view, tests, onReset }: Inner) {
  const [open, setOpen] = useState(false);
  return (
    <Drawer.Root open={open} onOpenChange={setOpen} noBodyStyles disablePreventScroll>
      <Drawer.Trigger asChild>
        <IconButton icon="plug" label={label} className="plug-button touch" />
      </Drawer.Trigger>
      <Drawer.Portal>
        <div className="scrim" />
        <Drawer.Content className="drawer" aria-describedby={undefined}>
          <div className="handle" aria-hidden="true" />
          <Drawer.Title className="unseen">{label}</Drawer.Title>
          <div className="inside" data-vaul-no-drag>
            <McpPanel id={id} view={view} tests={tests} onReset={onReset} onLeave={() => setOpen(false)} />
          </div>
        </Drawer.Content>
      </Drawer.Portal>
    </Drawer.Root>
  );
}
