// A worker with kafkajs; tests/conformance/clients/__init__.py says what a worker is.

const readline = require('node:readline')
const { AssignerProtocol, Kafka, logLevel } = require('kafkajs')
const { version } = require('kafkajs/package.json')

const given = Object.fromEntries(process.argv.slice(2).map((each) => each.split(/=(.*)/s).slice(0, 2)))

/** The system's clock tells whole milliseconds here: the one in which a partition is received is counted from its end.
 * (performance.now(), which is finer, drifts from the clock that workers in other processes read.) */
function say(event, fields = {}) {
  const at = (Date.now() + (event === 'assigned' ? 1 : 0)) / 1000
  process.stdout.write(JSON.stringify({ event, at, ...fields }) + '\n')
}

const leaving = new Promise((resolve) => {
  const lines = readline.createInterface({ input: process.stdin })
  lines.on('line', (line) => line === 'leave' && resolve())
  lines.on('close', resolve)
})

const kafka = new Kafka({
  clientId: given.name ?? 'kafkajs',
  brokers: given.bootstrap.split(','),
  logLevel: logLevel.WARN,
  logCreator: () => ({ namespace, log }) => process.stderr.write(`${namespace} ${log.message} ${log.error ?? ''}\n`),
  // While it tries again it sends no heartbeats: not for longer than a session.
  retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 5 },
})

function places(assignment) {
  return Object.entries(assignment).flatMap(([topic, partitions]) => partitions.map((partition) => [topic, partition]))
}

/** Kafka's range assignor, for one topic: kafkajs has only one of its own, whose name no other client knows. */
function range({ cluster }) {
  const { MemberMetadata, MemberAssignment } = AssignerProtocol
  return {
    name: given.assignor ?? 'range',
    version: 0,
    async assign({ members }) {
      const ids = members.map(({ memberId }) => memberId).sort()
      const partitions = cluster.findTopicPartitionMetadata(given.topic).map(({ partitionId }) => partitionId).sort((a, b) => a - b)
      const [share, extra] = [Math.floor(partitions.length / ids.length), partitions.length % ids.length]
      return ids.map((memberId, index) => {
        const first = share * index + Math.min(index, extra)
        const own = partitions.slice(first, first + share + (index < extra ? 1 : 0))
        const memberAssignment = MemberAssignment.encode({ version: 0, assignment: { [given.topic]: own }, userData: Buffer.alloc(0) })
        return { memberId, memberAssignment }
      })
    },
    protocol({ topics }) {
      return { name: this.name, metadata: MemberMetadata.encode({ version: this.version, topics, userData: Buffer.alloc(0) }) }
    },
  }
}

/** A consumer that has subscribed, and says what it is given; `stop` leaves. */
async function joined() {
  const session = Number(given.session_timeout_ms ?? 10000)
  const consumer = kafka.consumer({
    groupId: given.group,
    partitionAssigners: [range],
    sessionTimeout: session,
    heartbeatInterval: Math.min(500, session / 3),
    maxWaitTimeInMs: 100,
    rebalanceTimeout: 10000,
  })
  let owned = []
  const give = () => {
    if (owned.length) say('revoked', { partitions: owned })
    owned = []
  }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    owned = places(payload.memberAssignment)
    // It tells no generation.
    say('assigned', { partitions: owned, generation: null, member: payload.memberId })
  })
  consumer.on(consumer.events.REBALANCING, give)
  // It joins again by itself; until then it owns nothing.
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    say('error', { error: String(payload.error) })
    give()
    if (!payload.restart) fail(payload.error)
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [given.topic], fromBeginning: true })
  return {
    consumer,
    async stop() {
      await consumer.stop()
      give()
      await consumer.disconnect()
    },
  }
}

function after(batch) {
  return String(BigInt(batch.lastOffset()) + 1n)
}

function offsetsOf(batch) {
  return [[batch.topic, batch.partition, batch.messages.map((message) => Number(message.offset))]]
}

async function consume() {
  const { consumer, stop } = await joined()
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: true,
    eachBatch: async ({ batch, isStale, isRunning }) => {
      if (isStale() || !isRunning()) return
      say('consumed', { records: offsetsOf(batch) })
      try {
        await consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset: after(batch) }])
      } catch (error) {
        say('refused', { error: error.type ?? error.name })
        throw error
      }
      say('committed', { offsets: [[batch.topic, batch.partition, Number(after(batch))]] })
    },
  })
  await leaving
  await stop()
}

async function transactional() {
  const producer = kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    transactionalId: given.transactional_id,
    transactionTimeout: Number(given.transaction_timeout_ms ?? 20000),
  })
  await producer.connect()
  return producer
}

async function copy() {
  const producer = await transactional()
  const { consumer, stop } = await joined()
  await consumer.run({
    autoCommit: false,
    partitionsConsumedConcurrently: 1,
    eachBatch: async ({ batch, isStale, isRunning }) => {
      if (isStale() || !isRunning()) return
      const transaction = await producer.transaction()
      try {
        const messages = batch.messages.map(({ offset, value }) => ({ key: `${batch.topic}-${batch.partition}-${offset}`, value }))
        await transaction.send({ topic: given.output, messages })
        const topics = [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset: after(batch) }] }]
        await transaction.sendOffsets({ consumerGroupId: given.group, topics })
        await transaction.commit()
      } catch (error) {
        say('error', { error: String(error) })
        await transaction.abort()
        say('copied', { outcome: 'aborted', records: offsetsOf(batch) })
        throw error
      }
      say('copied', { outcome: 'committed', records: offsetsOf(batch) })
    },
  })
  await leaving
  await stop()
  await producer.disconnect()
}

async function transact() {
  const producer = await transactional()
  const every = Number(given.abort_every ?? 0)
  for (let number = 0; number < Number(given.transactions); number++) {
    const values = Array.from({ length: Number(given.records) }, (_, record) => `${given.name}-${number}-${record}`)
    say('begin', { number })
    let outcome = every && number % every === every - 1 ? 'aborted' : 'committed'
    const transaction = await producer.transaction()
    try {
      await transaction.send({ topic: given.topic, messages: values.map((value) => ({ key: value, value })) })
    } catch (error) {
      say('error', { error: String(error) })
      outcome = 'aborted'
    }
    if (outcome === 'committed') await transaction.commit()
    else await transaction.abort()
    say('transaction', { number, outcome })
  }
  await producer.disconnect()
}

function fail(error) {
  say('fatal', { error: String(error) })
  process.exit(1)
}

say('ready', { client: 'kafkajs', version })
const roles = { consume, copy, transact }
roles[given.role]().then(() => {
  say('left')
  process.exit(0)
}, fail)
