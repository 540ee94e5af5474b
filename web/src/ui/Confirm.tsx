import { AlertDialog } from "radix-ui";
import { useState } from "react";
import { message } from "../live/api";
import { Button } from "./Button";
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
  const close = (): void => {
    setError("");
    onClose();
  };
  const run = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      await act();
      close();
    } catch (e) {
      setError(message(e));
    } finally {
      setBusy(false);
    }
  };
  return (
    <AlertDialog.Root open={open} onOpenChange={(o) => !o && !busy && close()}>
      <AlertDialog.Portal>
        <div className="scrim" />
        <AlertDialog.Content className="dialog">
          <AlertDialog.Title asChild>
            <h2 className="wrap">{title}</h2>
          </AlertDialog.Title>
          <AlertDialog.Description asChild>
            <p className="small wrap">{text}</p>
          </AlertDialog.Description>
          <Problem text={error} />
          <div className="foot">
            <AlertDialog.Cancel asChild>
              <Button disabled={busy}>Keep it as it is</Button>
            </AlertDialog.Cancel>
            <Button kind={danger ? "danger primary" : "primary"} busy={busy} onClick={() => void run()}>
              {verb}
            </Button>
          </div>
        </AlertDialog.Content>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}
