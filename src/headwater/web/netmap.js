// The map of a net. All text goes through Vue's {{ }} and bindings, which escape it: names of sites and steps are anybody's.
export default {
  template: `
    <svg class="hw-graph hw-map" :viewBox="'0 0 ' + width + ' ' + height" :style="{ maxWidth: width + 'px', minWidth: width * 0.8 + 'px' }" role="group" :aria-label="label">
      <defs>
        <marker id="hw-arrow" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="18" markerHeight="18" markerUnits="userSpaceOnUse" orient="auto">
          <path d="M0 0 L8 4 L0 8 z" class="arrow"></path>
        </marker>
      </defs>
      <g v-for="edge in edges" :key="edge.key" class="link" :class="{ moves: edge.moves }">
        <title>{{ edge.about }}</title>
        <path :d="edge.path" :style="{ strokeWidth: edge.width + 'px' }" marker-end="url(#hw-arrow)"></path>
      </g>
      <g v-for="node in nodes" :key="node.name" class="node" tabindex="0" role="button"
         :aria-label="node.about" :data-site="node.name" :transform="'translate(' + node.x + ' ' + node.y + ')'"
         @click="$emit('pick', node.name)" @keydown.enter="$emit('pick', node.name)"
         @keydown.space.prevent="$emit('pick', node.name)">
        <title>{{ node.about }}</title>
        <rect class="box" :width="node_width" :height="node_height" rx="10"></rect>
        <rect class="strip" :class="node.strip" x="0" y="10" width="5" :height="node_height - 20" rx="2"></rect>
        <text class="name" x="16" y="24">{{ node.title }}</text>
        <text class="word" x="16" y="44">{{ node.word }}</text>
        <text class="line" x="16" y="65">{{ node.steps }}</text>
        <text class="line" x="16" y="84">{{ node.load }}</text>
        <text class="line" x="16" y="103">{{ node.cost }}</text>
      </g>
      <g v-for="edge in edges" :key="'label ' + edge.key" class="link" :class="{ moves: edge.moves }">
        <rect class="ground" :x="edge.x - edge.half" :y="edge.y - 14" :width="2 * edge.half" height="19" rx="5"></rect>
        <text :x="edge.x" :y="edge.y" text-anchor="middle">{{ edge.label }}</text>
      </g>
    </svg>
  `,
  props: ["nodes", "edges", "width", "height", "node_width", "node_height", "label"],
  emits: ["pick"],
};
