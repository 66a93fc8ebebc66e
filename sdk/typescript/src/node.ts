// The package in Node.

import { use } from './platform/current.js'
import { platform } from './platform/node.js'

use(platform)

export * from './index.js'
