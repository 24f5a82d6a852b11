// Small helpers of the page's tests: what is checked is printed, what fails is counted.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const AXE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
let failed = 0;

export function check(what, holds, found = '') {
  console.log(`${holds ? 'ok    ' : 'FAILED'} ${what}${found === '' ? '' : `: ${found}`}`);
  if (!holds) failed += 1;
}

export const failures = () => failed;

/** Waits until `probe` gives something; its last answer else. */
export async function until(probe, seconds = 15) {
  const end = Date.now() + seconds * 1000;
  let last;
  do {
    last = await probe().catch((error) => void (last = error.message));
    if (last) return last;
    await new Promise((next) => setTimeout(next, 200));
  } while (Date.now() < end);
  return last;
}

/** What axe-core finds that is serious or critical. */
export async function axe(page, where) {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => window.axe.run());
  const serious = found.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical');
  for (const v of found.violations) console.log(`       axe, ${v.impact}: ${v.id} in ${where}: ${v.nodes[0].html.slice(0, 120)}`);
  check(`axe-core finds nothing serious in ${where}`, serious.length === 0);
}

/** Errors of a page are failures of its tests. */
export function watch(page) {
  page.on('pageerror', (error) => check('the page throws nothing', false, error.message));
}
