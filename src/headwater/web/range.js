// A moment among many, to be chosen by mouse or by the keys that every browser has for that.
export default {
  template: `
    <input type="range" class="hw-range" min="0" :max="last" :value="at" :aria-label="label" :aria-valuetext="says"
           @input="$emit('scrub', Number($event.target.value))">
  `,
  props: ["last", "at", "label", "says"],
  emits: ["scrub"],
};
