// Every pass of the compiler.
#ifndef BAGUA_COMPILER_PASSES
#define BAGUA_COMPILER_PASSES

include "mlir/Pass/PassBase.td"

// ---- bagua -> bagua ----------------------------------------------------------------------------

def InlineFunctions : Pass<"bagua-inline-functions", "::mlir::ModuleOp"> {
  let summary = "Puts the bodies of functions in the place of their calls";
  let description = [{
    Functions are private to the file, or of the prelude, which has momentum, second_moment, adam and sgd. They
    take and return values; one that calls itself, or that nobody defines, is refused at the call. All are
    erased.

    Before:
    ```mlir
    func.func private @halve(%x: tensor<?xf32, #bagua.bucket>) -> tensor<?xf32, #bagua.bucket> {
      %y = bagua.map %x / 2.0
      return %y : tensor<?xf32, #bagua.bucket>
    }
    %h = bagua.call @halve(%g) : (tensor<?xf32, #bagua.bucket>) -> tensor<?xf32, #bagua.bucket>
    ```
    After:
    ```mlir
    %h = bagua.map %g / 2.0
    ```
  }];
  let dependentDialects = ["::bagua::ir::BaguaDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
                           "::mlir::scf::SCFDialect"];
}

def VerifyUniformity : Pass<"bagua-verify-uniformity", "::bagua::ir::AlgorithmOp"> {
  let summary = "Refuses conditions that may differ between ranks";
  let description = [{
    Communication under a condition that holds on some ranks only hangs the others. A condition must be
    computed from `bagua.world`, `bagua.local_size`, `bagua.nodes`, `bagua.step`, parameters and constants; `bagua.rank` taints what is computed
    from it, also through the result of an `scf.if`. The same holds for the round of a topology and for the
    seed of random numbers that ranks share.
  }];
}

def VerifyMixing : Pass<"bagua-verify-mixing", "::bagua::ir::AlgorithmOp"> {
  let summary = "Refuses mixing that does not lead to the average";
  let description = [{
    For each topology that a `bagua.mix` names, in worlds of 2 to 8 ranks and exact rationals: in each round the
    weights that a rank gives, and those that it takes, sum to 1; and over the rounds after which peers repeat,
    news of each rank reaches every other. Also: a mix is in the round of the exchange that it mixes.
  }];
}

def VerifyResiduals : Pass<"bagua-verify-residuals", "::bagua::ir::AlgorithmOp"> {
  let summary = "Refuses residuals of another value than the one that travels";
  let description = [{
    Error feedback keeps what a codec lost: c - decode(encode(c)). Where a state that feeds what is encoded is
    updated to a value less the decoding, the decoding must be of that value: else the error is not the codec's, and
    grows. How the difference is written does not matter; SPEC.md, R1, says what is seen. What was received, or
    reduced, is no residual and is left alone.
  }];
}

def VerifyStaleness : Pass<"bagua-verify-staleness", "::bagua::ir::AlgorithmOp"> {
  let summary = "Refuses timed rounds beside steps in which ranks wait for each other";
  let description = [{
    At the staleness bound the trainer waits for a round, and so for ranks that have not begun it yet. Where rounds
    begin by the clock, such a rank may be some steps ahead or behind; it begins the round at a boundary, and must be
    able to get there: no handler of the steps may wait for peers while rounds are under way. What is done under
    `step < %n`, with rounds `after(%n)`, is done before. Updates of states and gated updates wait for all ranks, too:
    for whether the step is finite. Rounds that count steps begin at the same boundaries on all ranks.
  }];
}

def VerifyUses : Pass<"bagua-verify-uses", "::bagua::ir::AlgorithmOp"> {
  let summary = "Refuses results that no update uses";
  let description = [{
    A handler acts through `bagua.update` only. Data that reaches none, directly or through other ops and
    the results of an `scf.if`, was forgotten, and what was communicated for it is lost. The report stands at
    the end of the chain, where the update is missing; a handler without any update is refused as a whole.
  }];
}

def ExpandVia : Pass<"bagua-expand-via", "::bagua::ir::AlgorithmOp"> {
  let summary = "Writes out all_reduce through a codec";
  let description = [{
    Before:
    ```mlir
    %m = bagua.all_reduce mean %g via #mm
    ```
    After:
    ```mlir
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    %m = scf.if %many -> (tensor<?xf32, #bagua.bucket>) {
      %parts = bagua.split %g over @world
      %coded = bagua.encode %parts : … with #mm
      %got = bagua.all_to_all %coded : … over @world
      %vals = bagua.decode %got : …
      %mine = bagua.reduce mean %vals : …
      %q = bagua.encode %mine : … with #mm
      %all = bagua.all_gather %q : … over @world
      %dec = bagua.decode %all : …
      %out = bagua.concat %dec : …
      scf.yield %out : …
    } else {
      scf.yield %g : …
    }
    ```
    With `remember @w`, what is split is `%c = bagua.map %g + (read @w)`, and what it lost is kept:
    `bagua.update @w = %c - (bagua.concat of the decoded %coded)`. With `remember @w, @s`, the owner
    of a shard does the same around the second `encode`.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect"];
  let statistics = [Statistic<"numExpanded", "expanded", "Number of all_reduce ops expanded">];
}

def SpecializeWorldOne : Pass<"bagua-specialize-world-one", "::bagua::ir::AlgorithmOp"> {
  let summary = "Takes the codecs out of a world of one rank";
  let description = [{
    Alone, codecs are the identity (SPEC.md, W1). A handler that encodes without asking for `world > 1` becomes
    two: as written where there are more ranks, and without encode and decode where there is one.

    Before:
    ```mlir
    %q = bagua.encode %g with #sign
    %d = bagua.decode %q : …
    bagua.update @e = %d
    ```
    After:
    ```mlir
    scf.if %many {
      %q = bagua.encode %g with #sign
      %d = bagua.decode %q : …
      bagua.update @e = %d
    } else {
      bagua.update @e = %g
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect"];
}

// ---- bagua -> chunk ----------------------------------------------------------------------------

def BaguaToChunk : Pass<"bagua-to-chunk", "::mlir::ModuleOp"> {
  let summary = "Gives values places in buffers and slots; ops become moves and launches";
  let description = [{
    One `chunk.schedule` per algorithm, one `chunk.program` per handler. Collectives are direct: every rank
    sends each peer its part, in the order of their distance. Fused on the way:

    - the shards of a bucket are encoded in one pass over it;
    - decode waits for its use: decode and reduce are one launch, decode and concat write the bucket once;
    - what ends as the new gradient is computed in the job's own buffer, where the old is not needed, and what
      ends as a state's next value there.

    Updates of a bucket that is still needed as it was happen when all else has. States and gated weights are
    committed last, behind the gate and in finite steps only.

    Before:
    ```mlir
    %all = bagua.all_gather %mine : tensor<?xf32, #bagua.shard<@world>> over @world
    ```
    After:
    ```mlir
    chunk.for %k = %one to %n {
      %x = chunk.range %g[%offset, %bytes] part(%r)
      chunk.move %x to rotate(%k) into %slots[%r]
    }
    ```
  }];
  let dependentDialects = ["::bagua::ir::chunk::ChunkDialect", "::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect", "::mlir::scf::SCFDialect"];
}

#endif // BAGUA_COMPILER_PASSES
