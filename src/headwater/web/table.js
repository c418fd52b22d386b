// A table that is told its cells; Vue escapes them. A row with a key can be chosen, by mouse or keyboard.
export default {
  template: `
    <table class="hw-table">
      <thead><tr><th v-for="column in columns" :class="column.kind" :title="column.about">{{ column.label }}</th></tr></thead>
      <tbody>
        <tr v-for="row in rows" :key="row.key" :data-key="row.key" :class="{ pick: picks, chosen: row.chosen }"
            :tabindex="picks ? 0 : null" @click="pick(row)" @keydown.enter="pick(row)" @keydown.space.prevent="pick(row)">
          <td v-for="(cell, at) in row.cells" :class="columns[at].kind">{{ cell }}</td>
        </tr>
      </tbody>
    </table>
  `,
  props: ["columns", "rows", "picks"],
  emits: ["pick"],
  methods: {
    pick(row) {
      if (this.picks) this.$emit("pick", row.key);
    },
  },
};
