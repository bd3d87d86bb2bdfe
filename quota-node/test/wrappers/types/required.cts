// The same types for CommonJS. It is compiled, not run.

import express = require('express')
import { Gate, Policy, Principal } from 'quota-node'
import ai = require('quota-node/ai')
import anthropic = require('quota-node/anthropic')
import quotaExpress = require('quota-node/express')
import quotaFastify = require('quota-node/fastify')
import quotaFetch = require('quota-node/fetch')
import quotaHono = require('quota-node/hono')
import openai = require('quota-node/openai')
import sdk = require('openai')
import claude = require('@anthropic-ai/sdk')

const gate = new Gate(Policy.fromFile('policy.yaml'))
const who = new Principal({ tenant: 'acme' })
express().use(quotaExpress.quotaMiddleware({ gate }))
const client: sdk.OpenAI = openai.wrap(new sdk.OpenAI(), { gate, who })
const other: claude.Anthropic = anthropic.wrap(new claude.Anthropic(), { gate, who })
export = { ai: ai.quotaMiddleware({ gate, who }), plugin: quotaFastify.quotaPlugin, hono: quotaHono.ROUTES, quotaFetch, client, other }
