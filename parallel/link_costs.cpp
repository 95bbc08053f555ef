#include "parallel/link_costs.h"

#include <fmt/format.h>

namespace tokenmill::parallel {

size_t GroupCosts::route(TransferKind kind, int64_t part_bytes) const {
  size_t best = 0;
  for (size_t i = 1; i < routes.size(); ++i)
    if (routes[i].seconds(kind, part_bytes, size) < routes[best].seconds(kind, part_bytes, size)) best = i;
  return best;
}

double GroupCosts::seconds(TransferKind kind, int64_t part_bytes) const {
  return routes.empty() ? 0 : routes[route(kind, part_bytes)].seconds(kind, part_bytes, size);
}

std::string GroupCosts::describe() const {
  std::string text;
  for (const RouteCosts& route : routes)
    text += fmt::format("{}{} {:.1f} us + {:.3f} ns/B", text.empty() ? "" : ", ", route.name,
                        route.collective.alpha_s * 1e6, route.collective.beta_s_per_byte * 1e9);
  return text;
}

}  // namespace tokenmill::parallel
