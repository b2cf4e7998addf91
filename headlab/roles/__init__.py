"""What heads do: where they look, how sharply, and which roles they have.

Roles are those of Voita et al. (ACL 2019).
"""

from headlab.roles.report import EXAMPLE_TOKENS as EXAMPLE_TOKENS
from headlab.roles.report import EXAMPLES as EXAMPLES
from headlab.roles.report import HAS as HAS
from headlab.roles.report import SHARES as SHARES
from headlab.roles.report import RoleResult as RoleResult
from headlab.roles.report import Roles as Roles
from headlab.roles.report import heads_of as heads_of
from headlab.roles.report import judged_rows as judged_rows
from headlab.roles.report import read_roles as read_roles
from headlab.roles.report import rows_with_role as rows_with_role
from headlab.roles.sentences import Frequencies as Frequencies
from headlab.roles.sentences import Sentences as Sentences
from headlab.roles.sentences import corpus_frequencies as corpus_frequencies
from headlab.roles.sentences import of_task as of_task
from headlab.roles.sentences import of_trees as of_trees
from headlab.roles.table import FILE as FILE
from headlab.roles.table import KINDS as KINDS
from headlab.roles.table import NAME as NAME
from headlab.roles.table import OPTIONS as OPTIONS
from headlab.roles.table import POSITIONAL as POSITIONAL
from headlab.roles.table import RARE as RARE
from headlab.roles.table import SYNTACTIC as SYNTACTIC
from headlab.roles.table import VERSION as VERSION
from headlab.roles.table import group_of as group_of
from headlab.roles.table import kind_of as kind_of
from headlab.roles.table import resolve as resolve
