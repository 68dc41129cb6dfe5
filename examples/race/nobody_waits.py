"""Nobody waits: each push is applied when it comes, batches are small, and Adagrad finds its own rates."""

import minips as ps

config = ps.Config(consistency=ps.ASP(), optimizer=ps.Adagrad(lr=0.05), batch_size=8)
