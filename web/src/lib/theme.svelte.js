// Light or dark: what the reader's system says, unless the reader chose here.

const system = matchMedia('(prefers-color-scheme: dark)');

export const theme = $state({ choice: stored(), dark: false });

function stored() {
  try {
    return localStorage.getItem('theme') ?? 'auto';
  } catch {
    return 'auto';
  }
}

function apply() {
  theme.dark = theme.choice === 'dark' || (theme.choice === 'auto' && system.matches);
  document.documentElement.dataset.theme = theme.dark ? 'dark' : 'light';
}

/** The next of auto, light, dark. */
export function turn() {
  theme.choice = { auto: 'light', light: 'dark', dark: 'auto' }[theme.choice] ?? 'auto';
  try {
    localStorage.setItem('theme', theme.choice);
  } catch {
    // Private windows may forbid it; then it lasts as long as the page.
  }
  apply();
}

system.addEventListener('change', apply);
apply();
