import { Dialog } from "radix-ui";
import { useRef, useState } from "react";
import { message } from "../live/api";
import { Button } from "./Button";
import { focusMain } from "./focus";
import { Problem } from "./Problem";

interface Props {
  open: boolean;
  onClose: () => void;
  title: string;
  text: string;
  verb: string;
  danger?: boolean;
  act: () => Promise<unknown>;
}

/** Asks before something that cannot be taken back, and stays until it is done. */
export function Confirm({ open, onClose, title, text, verb, danger = true, act }: Props) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  // What was clicked is likely gone when it is done: the keyboard then goes on from the
  // list that it stood in.
  const list = useRef<HTMLElement | null>(null);
  const acted = useRef(false);
  const close = (): void => {
    setError("");
    onClose();
  };
  const run = async (): Promise<void> => {
    setBusy(true);
    setError("");
    acted.current = true;
    try {
      await act();
      close();
    } catch (e) {
      acted.current = false;
      setError(message(e));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog.Root open={open} onOpenChange={(o) => !o && !busy && close()}>
      <Dialog.Portal>
        <div className="scrim" />
        <Dialog.Content
          className="dialog"
          onInteractOutside={(e) => e.preventDefault()}
          onOpenAutoFocus={() => {
            acted.current = false;
            list.current = document.activeElement?.closest<HTMLElement>('[role="region"][tabindex]') ?? null;
          }}
          onCloseAutoFocus={(e) => {
            if (!acted.current) return;
            e.preventDefault();
            if (list.current?.isConnected) list.current.focus();
            else focusMain();
          }}
        >
          <Dialog.Title asChild>
            <h2 className="wrap">{title}</h2>
          </Dialog.Title>
          <Dialog.Description asChild>
            <p className="small wrap">{text}</p>
          </Dialog.Description>
          <Problem text={error} />
          <div className="foot">
            <Dialog.Close asChild>
              <Button disabled={busy}>Keep it as it is</Button>
            </Dialog.Close>
            <Button kind={danger ? "danger primary" : "primary"} busy={busy} onClick={() => void run()}>
              {verb}
            </Button>
          </div>
        </Dialog.Content>
      </Dialog.Portal>
    </Dialog.Root>
  );
}
