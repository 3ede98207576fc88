// Sends one record through a secured listener with kafkajs, and says how that went: one line, "sent" or the client's error.
// tests/conformance/clients/secured.py says what the argument is.
const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const given = JSON.parse(process.argv[2])
const ssl = { ca: [fs.readFileSync(given.ca, 'utf8')] }
if (given.certificate) ssl.cert = ssl.key = fs.readFileSync(given.certificate, 'utf8')
const sasl = given.mechanism === 'OAUTHBEARER'
  ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: given.password }) }
  : given.mechanism
  ? { mechanism: given.mechanism.toLowerCase(), username: given.user, password: given.password }
  : undefined
const kafka = new Kafka({ brokers: [given.bootstrap], ssl, sasl, logLevel: logLevel.NOTHING, retry: { retries: 2 } })
const producer = kafka.producer()
const send = async () => {
  await producer.connect()
  await producer.send({ topic: given.topic, messages: [{ value: 'x' }] })
  await producer.disconnect()
}
send().then(
  () => console.log('sent'),
  (error) => console.log(`${error.name}: ${error.message}`.replaceAll('\n', ' ')),
)
