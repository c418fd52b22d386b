// Zones with their devices, and steps on them that can be dragged to another device, or chosen by keyboard. Vue escapes all text.
export default {
  template: `
    <div class="hw-board" role="group" :aria-label="label">
      <section v-for="zone in zones" :key="zone.name" class="zone">
        <h3>{{ zone.name }}<span v-if="zone.cloud" class="kind">cloud</span></h3>
        <div v-for="device in zone.devices" :key="device.name" class="device" :class="{ over: over === device.name, full: device.full }"
             :data-device="device.name" @dragover.prevent="over = device.name" @dragleave="over = null" @drop.prevent="placed(device.name)">
          <div class="head"><span class="named">{{ device.name }}</span><span class="kind">{{ device.kind }}</span></div>
          <div class="hw-bar" v-if="device.busy !== null" role="img" :aria-label="device.load"><div :style="{ width: device.busy + '%' }"></div></div>
          <div class="load">{{ device.load }}</div>
          <div v-for="step in device.steps" :key="step.name" role="button" tabindex="0" class="chip"
               :class="{ moved: step.moved, chosen: step.name === chosen, pinned: step.pinned }" draggable="true" :data-step="step.name"
               :aria-pressed="step.name === chosen" :title="step.about" @dragstart="lifted($event, step.name)" @dragend="over = null"
               @click="$emit('pick', step.name)" @keydown.enter="$emit('pick', step.name)"
               @keydown.space.prevent="$emit('pick', step.name)">{{ step.name }}{{ step.mark }}</div>
        </div>
      </section>
    </div>
  `,
  props: ["zones", "chosen", "label"],
  emits: ["pick", "place"],
  data() {
    return { over: null, held: null };
  },
  methods: {
    lifted(event, step) {
      this.held = step;
      event.dataTransfer.setData("text/plain", step); // some browsers drag nothing without
    },
    placed(device) {
      if (this.held) this.$emit("place", { step: this.held, device: device });
      this.held = this.over = null;
    },
  },
};
