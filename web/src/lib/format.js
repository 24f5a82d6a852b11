// Numbers as people read them. All take plain numbers and give text.

const SIZES = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

/** Three digits that matter. */
export function short(x) {
  if (!Number.isFinite(x)) return '–';
  const a = Math.abs(x);
  if (a === 0) return '0';
  if (a >= 1e9) return `${digits(x / 1e9)} G`;
  if (a >= 1e6) return `${digits(x / 1e6)} M`;
  if (a >= 1e4) return `${digits(x / 1e3)} k`;
  return digits(x);
}

function digits(x) {
  const a = Math.abs(x);
  if (a >= 100) return Math.round(x).toString();
  if (a >= 10) return trim(x.toFixed(1));
  return trim(x.toFixed(2));
}

function trim(text) {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

export function bytes(n) {
  if (!Number.isFinite(n)) return '–';
  let i = 0;
  while (Math.abs(n) >= 999.5 && i < SIZES.length - 1) {
    n /= 1000;
    i += 1;
  }
  return `${digits(n)} ${SIZES[i]}`;
}

/** Microseconds. */
export function time(us) {
  if (!Number.isFinite(us)) return '–';
  if (us === 0) return '–';
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${digits(us / 1000)} ms`;
  return `${digits(us / 1e6)} s`;
}

export function percent(x) {
  return Number.isFinite(x) ? `${digits(x * 100)} %` : '–';
}

/** A rate in a contract's unit: commands, bytes, or disk time in nanoseconds a second. */
export function rate(x, unit) {
  if (unit === 'bytes') return `${bytes(x)}/s`;
  if (unit === 'disk time') return `${digits(x / 1e7)} % of disk time`;
  return `${short(x)}/s`;
}

export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
}

export function date(ms) {
  return new Date(ms).toLocaleString([], {
    month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false,
  });
}

export function terms(contract) {
  const all = Object.entries(contract ?? {}).map(([key, value]) => `${key} ${value}`);
  return all.length ? all.join(', ') : 'best effort';
}
