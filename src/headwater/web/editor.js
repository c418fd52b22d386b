// A field for the text of a query, with what is wrong in it marked in place: the same text lies behind the field, and only
// the mark of it can be seen. Vue escapes all text.
export default {
  template: `
    <div class="hw-editor">
      <label :for="field">{{ label }}</label>
      <div class="both">
        <pre aria-hidden="true">{{ parts[0] }}<mark v-if="wrong" class="hw-fault">{{ parts[1] }}</mark>{{ parts[2] }}{{ "\\n" }}</pre>
        <textarea :id="field" v-model="text" rows="1" spellcheck="false" autocapitalize="off" autocomplete="off"
                  :aria-invalid="wrong !== null" :aria-describedby="field + '-says'" @input="typed" @blur="told"
                  @keydown.ctrl.enter.prevent="ask" @keydown.meta.enter.prevent="ask"></textarea>
      </div>
      <div class="says" :id="field + '-says'" role="alert">{{ wrong ? wrong.says : "" }}</div>
    </div>
  `,
  props: ["label", "begin", "fault"],
  emits: ["typed", "ask"],
  data() {
    return { text: this.begin, field: "hw-field-" + Math.random().toString(36).slice(2), last: this.begin, wait: null };
  },
  computed: {
    wrong() {
      return this.fault && this.fault.of === this.text ? this.fault : null; // of another text it says nothing
    },
    parts() {
      if (!this.wrong) return [this.text, "", ""];
      const lines = this.text.split("\n");
      const row = Math.min(Math.max(this.wrong.line, 1), lines.length) - 1;
      const before = lines.slice(0, row).reduce((sum, line) => sum + line.length + 1, 0);
      const from = Math.min(before + Math.max(this.wrong.column - 1, 0), this.text.length);
      const to = from + this.wrong.offending.length;
      return [this.text.slice(0, from), this.text.slice(from, to) || " ", this.text.slice(to)];
    },
  },
  watch: {
    begin(now, before) {
      if (this.text === before || this.text === "") {
        this.text = this.last = now; // what somebody has typed is theirs
      }
    },
  },
  methods: {
    typed() {
      clearTimeout(this.wait);
      this.wait = setTimeout(this.told, 300);
    },
    told() {
      clearTimeout(this.wait);
      if (this.text !== this.last) this.$emit("typed", this.text);
      this.last = this.text;
    },
    ask() {
      this.told();
      this.$emit("ask");
    },
  },
};
