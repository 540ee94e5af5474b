import { Dialog as Radix } from "radix-ui";
import type { ReactNode } from "react";
import { IconButton } from "./Button";

interface Props {
  open: boolean;
  onClose: () => void;
  title: string;
  description?: ReactNode;
  wide?: boolean;
  children: ReactNode;
}

// The overlay of Radix locks scrolling by an element <style>, which the page's policy
// refuses; the body of this page does not scroll, so a plain scrim does.
export function Dialog({ open, onClose, title, description, wide, children }: Props) {
  return (
    <Radix.Root open={open} onOpenChange={(o) => !o && onClose()}>
      <Radix.Portal>
        <div className="scrim" />
        <Radix.Content className={`dialog ${wide ? "wide" : ""}`} {...(description ? {} : { "aria-describedby": undefined })}>
          <div className="row spread top">
            <Radix.Title asChild>
              <h2 className="wrap">{title}</h2>
            </Radix.Title>
            <Radix.Close asChild>
              <IconButton icon="close" label="Close" />
            </Radix.Close>
          </div>
          {description && (
            <Radix.Description asChild>
              <div className="small muted">{description}</div>
            </Radix.Description>
          )}
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
