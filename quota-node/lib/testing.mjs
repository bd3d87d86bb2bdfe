export { ManualClock, SimulatedPool, replay } from './testing.cjs'
