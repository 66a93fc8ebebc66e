// Node 18 and 20 have "await using" by their compilers only, which ask for this symbol.
const symbols = Symbol as { asyncDispose?: symbol }
symbols.asyncDispose ??= Symbol.for('Symbol.asyncDispose')

export {}
