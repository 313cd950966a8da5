"""Goes through a graph step by step, as torch's own interpreter does, without its progress bar.

That bar makes a lock between processes, of which a rank that ends leaves a complaint behind.
"""

from torch import Tensor
from torch.fx import Interpreter

__all__ = ["GraphWalk"]


class GraphWalk(Interpreter):
    """Runs every step of a graph with one input; `run_node` is what subclasses change."""

    def walk(self, images: Tensor) -> None:
        """All steps in order; values that nobody will read are let go of, where that is asked for."""
        self.args_iter = iter((images,))
        for node in self.graph.nodes:
            self.env[node] = self.run_node(node)
            if self.garbage_collect_values:
                for read in self.user_to_last_uses.get(node, []):
                    del self.env[read]
        self.env.clear()
