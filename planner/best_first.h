#pragma once

#include <vector>

#include "planner/judge.h"

namespace foretrain {

/// Pieces of work: groups of a space that share much of what an evaluation builds.
using SearchUnits = std::vector<std::vector<std::size_t>>;

/// Searches a space without evaluating what cannot be among what is asked for: the best `exact_best` of the objective
/// and, where it is asked for, the front of time and memory. Every set of layouts that differ in recomputation alone
/// gets a floor; they are evaluated in the order of their floors, round by round, and within one the choices whose own
/// floor leaves a chance. What is left out is counted as `bound`. What is asked for is that of a look at every layout,
/// and counts do not depend on the number of shares (threads): chances are those of the rounds before.
void search_best_first(SearchContext& context, const SearchUnits& units, std::vector<Share>& shares);

} // namespace foretrain
