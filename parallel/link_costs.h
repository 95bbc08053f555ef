#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace tokenmill::parallel {

/// Seconds of one transfer by the bytes a rank has to do with: alpha_s + bytes * beta_s_per_byte.
struct LinkCosts {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  double seconds(int64_t bytes) const { return alpha_s + beta_s_per_byte * static_cast<double>(bytes); }
};

/// One way for bytes inside a group, as measured there.
struct RouteCosts {
  std::string name;      ///< "mpi", "shm"
  LinkCosts collective;  ///< exchange, all_gather, broadcast; bytes: part x (size - 1), received by each rank
  LinkCosts pair;        ///< send with its recv; bytes: of the message

  double seconds(TransferKind kind, int64_t part_bytes, int size) const {
    const bool is_pair = kind == TransferKind::kSend || kind == TransferKind::kRecv;
    return is_pair ? pair.seconds(part_bytes) : collective.seconds(part_bytes * (size - 1));
  }
};

/// What a group's transfers cost; equal on all its ranks.
struct GroupCosts {
  int size = 1;
  std::vector<RouteCosts> routes;  ///< empty for a group of one rank, or when not measured

  /// The cheapest route for parts of part_bytes between two ranks (the first of equal ones); 0 without costs.
  size_t route(TransferKind kind, int64_t part_bytes) const;
  /// On that route; 0 without costs.
  double seconds(TransferKind kind, int64_t part_bytes) const;
  /// "shm 3.1 us + 0.21 ns/B, mpi 4.0 us + 0.11 ns/B": for logs.
  std::string describe() const;
};

}  // namespace tokenmill::parallel
