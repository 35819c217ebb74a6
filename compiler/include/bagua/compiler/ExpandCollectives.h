// Collectives of the `bagua` dialect written out as the graph an expert would write.
#pragma once

#include "bagua/dialect/Bagua/BaguaOps.h"

namespace bagua::compiler {

/// Replaces `op` by split, all_to_all, reduce, all_gather, concat under "the group has more than
/// one rank", with encode and decode around what travels if it goes `via` a codec. A scalar or a
/// shard is gathered and reduced.
void expandAllReduce(ir::AllReduceOp op);

/// Replaces `op` by split, all_to_all, reduce.
void expandReduceScatter(ir::ReduceScatterOp op);

} // namespace bagua::compiler
