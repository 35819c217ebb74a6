// Decentralized SGD on the one-peer exponential graph: at step t each rank averages its weights with
// those of the rank 2^(t mod ceil(log2 n)) before it. One message per rank and step; where n is a power of
// two, log2 n rounds make an exact average.
// Ying et al., Exponential Graph is Provably Efficient for Decentralized Deep Training, arXiv 2110.13363,
// equation 7.

#peer = #bagua.one_peer_exponential

bagua.algorithm @one_peer_exponential {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %w on #peer
    %x = bagua.mix %w, %n on #peer
    bagua.update weight = %x at before_update
  }
}
