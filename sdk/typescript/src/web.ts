// The package in browsers, and elsewhere.

import { use } from './platform/current.js'
import { platform } from './platform/web.js'

use(platform)

export * from './index.js'
