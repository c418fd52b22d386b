// The drawing of a flow. All text goes through Vue's {{ }} and bindings, which escape it: names are the user's, records anybody's.
export default {
  template: `
    <svg class="hw-graph" :viewBox="'0 0 ' + width + ' ' + height" :style="{ maxWidth: width + 'px', minWidth: width * 0.8 + 'px' }" role="group" :aria-label="label">
      <defs>
        <pattern id="hw-waits" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="3" height="6" fill="var(--waiting)"></rect>
        </pattern>
        <pattern id="hw-held" width="6" height="6" patternUnits="userSpaceOnUse">
          <rect width="3" height="6" fill="var(--held)"></rect>
        </pattern>
      </defs>
      <g v-for="edge in edges" :key="edge.key" class="edge">
        <path :d="edge.path" :style="{ strokeWidth: edge.width + 'px' }"></path>
      </g>
      <g v-for="node in nodes" :key="node.name" class="node" :class="{ worst: node.worst }" tabindex="0" role="button"
         :aria-label="node.about" :data-step="node.name" :transform="'translate(' + node.x + ' ' + node.y + ')'"
         @click="$emit('pick', node.name)" @keydown.enter="$emit('pick', node.name)"
         @keydown.space.prevent="$emit('pick', node.name)">
        <title>{{ node.about }}</title>
        <rect class="box" :width="node_width" :height="node_height" rx="10"></rect>
        <rect class="strip" :class="node.strip" x="0" y="10" width="5" :height="node_height - 20" rx="2"></rect>
        <text class="name" x="16" y="23">{{ node.title }}</text>
        <text class="line" x="16" y="42">{{ node.rate }}</text>
        <text class="line" x="16" y="58">{{ node.queue }}</text>
        <text class="word" :x="node_width - 12" y="42" text-anchor="end">{{ node.word }}</text>
        <rect class="idlebar" x="16" y="70" :width="bar" height="9" rx="4"></rect>
        <rect class="busybar" x="16" y="70" :width="bar * node.busy" height="9" rx="4"></rect>
        <rect :x="16 + bar * node.busy" y="70" :width="bar * node.waiting" height="9" fill="url(#hw-waits)"></rect>
        <rect :x="16 + bar * node.busy" y="70" :width="bar * node.held" height="9" fill="url(#hw-held)"></rect>
      </g>
      <g v-for="edge in edges" :key="'label ' + edge.key" class="edge">
        <rect class="ground" :x="edge.x - edge.half" :y="edge.y - 11" :width="2 * edge.half" height="15" rx="4"></rect>
        <text :x="edge.x" :y="edge.y" text-anchor="middle">{{ edge.label }}</text>
      </g>
    </svg>
  `,
  props: ["nodes", "edges", "width", "height", "node_width", "node_height", "label"],
  emits: ["pick"],
  computed: {
    bar() {
      return this.node_width - 28;
    },
  },
};
