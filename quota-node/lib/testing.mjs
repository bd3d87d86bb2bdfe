export { ManualClock, replay } from './testing.cjs'
