const paths = {
  sessions: "M4 5h16v11H9l-4 3v-3H4z",
  watches: "M2 12s4-6.500 10-6.500S22 12 22 12s-4 6.500-10 6.500S2 12 2 12zm10-3a3 3 0 1 0 0 6 3 3 0 0 0 0-6z",
  inbox: "M4 5h16v14H4zM4 14h5a3 3 0 0 0 6 0h5",
  feed: "M5 19a1 1 0 1 0 0-.1M4 11a9 9 0 0 1 9 9M4 5a15 15 0 0 1 15 15",
  signals: "M8 7h12M16 3l4 4-4 4M16 17H4M8 13l-4 4 4 4",
  workers: "M12 3l8 4.500v9L12 21l-8-4.500v-9zM4 7.500l8 4.500 8-4.500M12 12v9",
  plug: "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4",
  plus: "M12 5v14M5 12h14",
  back: "M15 5l-7 7 7 7",
  send: "M4 12l16-8-6 16-3-7z",
  stop: "M5 5h14v14H5z",
  more: "M5 11v2M4 12h2M12 11v2M11 12h2M19 11v2M18 12h2",
  copy: "M8 8h11v11H8zM5 16V5h11",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500L19 19M19 5l-1.500 1.500M6.500 17.500L5 19",
  moon: "M20 14.500A8 8 0 1 1 9.500 4a6.500 6.500 0 0 0 10.500 10.500z",
  system: "M3 5h18v11H3zM9 20h6M12 16v4",
  leave: "M10 4H5v16h5M15 8l4 4-4 4M19 12H9",
  down: "M12 5v14M6 13l6 6 6-6",
  close: "M6 6l12 12M18 6L6 18",
  pause: "M9 5v14M15 5v14",
  play: "M8 5l11 7-11 7z",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" strokeWidth="1.8" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}
