// The history of a disk or a node: what is newer is fetched once a second while its page is open.
import { ask, live } from './live.svelte.js';

/** Points kept: ten minutes. */
const KEPT = 600;

export class History {
  points = $state.raw([]);
  heat = $state.raw([]);
  edges = $state.raw([]);
  kept = $state.raw(null);
  problem = $state('');
  x = $derived(this.points.map((p) => p.t));
  #path;
  #asking = false;

  /** `path` gives the address of what it is the history of. */
  constructor(path) {
    this.#path = path;
    $effect(() => { live.tick; this.#load(); });
  }

  /** A figure as a line of a chart. */
  line = (key, label, color) => ({ label, values: this.points.map((p) => p[key]), color, fill: true });

  async #load() {
    if (this.#asking || live.state !== 'live') return;
    this.#asking = true;
    try {
      const told = await ask(`${this.#path()}?after=${this.points.at(-1)?.t ?? 0}`);
      this.points = [...this.points, ...told.history].slice(-KEPT);
      if (told.heat) this.heat = [...this.heat, ...told.heat].slice(-KEPT);
      this.kept = told.kept ?? null;
      this.edges = told.edges_ns ?? this.edges;
      this.problem = '';
    } catch (failure) {
      this.problem = failure.message;
    }
    this.#asking = false;
  }
}
