import type { ButtonHTMLAttributes, Ref } from "react";
import type { IconName } from "./Icon";
import { Icon } from "./Icon";

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  kind?: "plain" | "primary" | "danger" | "danger primary" | "quiet";
  icon?: IconName;
  busy?: boolean;
  ref?: Ref<HTMLButtonElement>;
}

/** A button with words, and perhaps an icon before them. */
export function Button({ kind = "plain", icon, busy, children, className, disabled, ...rest }: Props) {
  return (
    <button type="button" {...rest} disabled={disabled || busy} aria-busy={busy || undefined} className={`button ${kind} ${className ?? ""}`}>
      {busy ? <span className="spinner" aria-hidden="true" /> : icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

/** A button that shows an icon alone; its label is for those who cannot see it, and a title. */
export function IconButton({ label, icon, kind = "quiet", className, ...rest }: Omit<Props, "children" | "icon" | "busy"> & { label: string; icon: IconName }) {
  return (
    <button type="button" aria-label={label} title={label} {...rest} className={`button icon ${kind} ${className ?? ""}`}>
      <Icon name={icon} size={18} />
    </button>
  );
}
